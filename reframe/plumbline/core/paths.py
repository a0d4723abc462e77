"""Where Plumbline keeps things, and the variables that move them.

========================  ==========================================================
``PLUMBLINE_SYSTEMS``     folder of the system files (default: ``systems/``)
``PLUMBLINE_REFERENCE``   folder of the reference tables (default: ``reference/``)
``PLUMBLINE_RESULTS``     folder of sessions and records (default: ``results/``)
``PLUMBLINE_SPACK_ENV``   folder of the Spack environments (default: ``spack-env/``)
``PLUMBLINE_TOOLS``       install root of the providers (default: ``.tools/``)
``PLUMBLINE_SCRATCH``     scratch folder of the system ``local`` (default: ``/var/tmp``)
``PLUMBLINE_LOCKS``       folder of the lock that this host's sessions share (default:
                          ``/run/lock`` where every user may write there, or else ``/tmp``)
========================  ==========================================================
"""

import os
import stat
from pathlib import Path

#: The project's root folder: the package is always installed in place.
ROOT = Path(__file__).resolve().parents[3]
CHECKS = ROOT / "checks"
SETTINGS = ROOT / "reframe" / "settings.py"


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or ROOT / default).expanduser().absolute()


def systems() -> Path:
    """Folder of the system files."""
    return _folder("PLUMBLINE_SYSTEMS", "systems")


def reference() -> Path:
    """Folder of the reference tables."""
    return _folder("PLUMBLINE_REFERENCE", "reference")


def results() -> Path:
    """Folder of sessions, records and ReFrame's own store."""
    return _folder("PLUMBLINE_RESULTS", "results")


def spack_env() -> Path:
    """Folder of the Spack environments."""
    return _folder("PLUMBLINE_SPACK_ENV", "spack-env")


def tools() -> Path:
    """Install root of the providers: the wheels of ``pip``, and under ``spack/`` all of Spack's."""
    return _folder("PLUMBLINE_TOOLS", ".tools")


def scratch() -> Path:
    """Scratch folder of the system ``local``."""
    return _folder("PLUMBLINE_SCRATCH", "/var/tmp")


def locks() -> Path:
    """Folder of the lock that all of this host's sessions share, the same for every user."""
    usual = Path("/run/lock")
    shared = stat.S_IWOTH | stat.S_ISVTX
    if not usual.is_dir() or usual.stat().st_mode & shared != shared:
        usual = Path("/tmp")
    return _folder("PLUMBLINE_LOCKS", str(usual))
