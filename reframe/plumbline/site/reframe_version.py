"""The versions of ReFrame with which Plumbline works."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from plumbline.core.errors import Fault

#: Tested; what differs between them is in :mod:`plumbline.site.reframe_patches`.
VERSIONS = ("4.9.3", "4.10.0", "4.10.1", "4.10.2", "4.10.3", "4.10.4")


def check() -> None:
    """Check the version of ReFrame without importing it, as another one may not have the names that
    Plumbline imports.

    :raises Fault: if it is another one, or there is none.
    """
    found = importlib.util.find_spec("reframe")
    if found is None or not found.origin:
        raise Fault(
            f"ReFrame is not installed: load its module, or install it: "
            f"pip install reframe-hpc=={VERSIONS[-1]}",
            code="session.wrong-reframe",
        )
    text = Path(found.origin).read_text(encoding="utf-8")
    (version,) = re.findall(r"^VERSION = ['\"](.+)['\"]$", text, re.M) or ["of unknown version"]
    if version not in VERSIONS:
        raise Fault(
            f"{Path(found.origin).parent}: this is ReFrame {version}, and Plumbline works with "
            f"{', '.join(VERSIONS)}: load the module of one of these, or install one: "
            f"pip install reframe-hpc=={VERSIONS[-1]}",
            code="session.wrong-reframe",
        )
