"""The folders of Plumbline, and the variables that change them.

========================  ==========================================================
``PLUMBLINE_SYSTEMS``     folder of the system files (default: ``systems/``)
``PLUMBLINE_REFERENCE``   folder of the reference tables (default: ``reference/``)
``PLUMBLINE_RESULTS``     folder of sessions and records (default: ``results/``)
``PLUMBLINE_SPACK_ENV``   folder of the Spack environments (default: ``spack-env/``)
``PLUMBLINE_TOOLS``       install root of the providers (default: ``.tools/``)
``PLUMBLINE_SCRATCH``     scratch folder of the system ``local`` (default: ``/var/tmp``)
``PLUMBLINE_LOCKS``       folder of the lock of this host's sessions (default:
                          ``/run/lock`` if all users may write to it, otherwise ``/tmp``)
========================  ==========================================================
"""

import os
import stat
from pathlib import Path

#: The project's root folder; the package is always installed in place.
ROOT = Path(__file__).resolve().parents[3]
CHECKS = ROOT / "checks"
SETTINGS = ROOT / "reframe" / "settings.py"


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or ROOT / default).expanduser().absolute()


def systems() -> Path:
    """Return the folder of the system files."""
    return _folder("PLUMBLINE_SYSTEMS", "systems")


def reference() -> Path:
    """Return the folder of the reference tables."""
    return _folder("PLUMBLINE_REFERENCE", "reference")


def results() -> Path:
    """Return the folder of sessions, records and ReFrame's own store."""
    return _folder("PLUMBLINE_RESULTS", "results")


def spack_env() -> Path:
    """Return the folder of the Spack environments."""
    return _folder("PLUMBLINE_SPACK_ENV", "spack-env")


def tools() -> Path:
    """Return the install root of the providers: the wheels of ``pip``, and ``spack/``."""
    return _folder("PLUMBLINE_TOOLS", ".tools")


def scratch() -> Path:
    """Return the scratch folder of the system ``local``."""
    return _folder("PLUMBLINE_SCRATCH", "/var/tmp")


def locks() -> Path:
    """Return the folder of the lock of all sessions and users on this host."""
    default = Path("/run/lock")
    shared = stat.S_IWOTH | stat.S_ISVTX
    if not default.is_dir() or default.stat().st_mode & shared != shared:
        default = Path("/tmp")
    return _folder("PLUMBLINE_LOCKS", str(default))
