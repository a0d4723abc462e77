"""Inventories: the test cases that a system has, so that one that vanishes is noticed.

``systems/inventory/<system>.json`` holds each case's name and how many of its figures of merit a
reference asserted when it was written. ReFrame alone lets a check that no longer loads, or no
longer fits its system, disappear without a word.
"""

from __future__ import annotations

import json
from pathlib import Path

from plumbline import paths
from plumbline.errors import Fault


def path_of(system: str) -> Path:
    """The file of a system's inventory."""
    return paths.systems() / "inventory" / f"{system}.json"


def read(system: str) -> dict[str, int] | None:
    """Case -> how many of its figures are asserted; ``None`` where none was written yet.

    :raises Fault: if the file is no inventory.
    """
    path = path_of(system)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(case): int(asserted) for case, asserted in content.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError) as err:
        mend = f"`plumbline lint --system {system} --accept` writes it"
        raise Fault(f"{path}: no inventory: {err}; {mend}") from None


def write(system: str, cases: dict[str, int]) -> Path:
    """Writes a system's inventory."""
    path = path_of(system)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(sorted(cases.items())), indent=1) + "\n", encoding="utf-8")
    return path
