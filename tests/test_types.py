"""The package's own types: what a reader may rely on."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "reframe" / "plumbline"


def test_no_class_name_is_used_twice() -> None:
    names = Counter(
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"^class (\w+)", path.read_text(), re.M)
    )
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []
