"""The folders of Plumbline, and the variables that change them.

========================  ==========================================================
``PLUMBLINE_SITE``        a site's own systems, Spack environments, references and checks
                          (default: ``site/`` in the checkout, without one ``~/plumbline``)
``PLUMBLINE_RESULTS``     folder of sessions and records (default: ``results/``)
``PLUMBLINE_TOOLS``       install root of the providers (default: ``.tools/``)
``PLUMBLINE_SCRATCH``     scratch folder of the system ``local`` (default: ``/var/tmp``)
``PLUMBLINE_LOCKS``       folder of the lock of this host's sessions (default:
                          ``/run/lock`` if all users may write to it, otherwise ``/tmp``)
========================  ==========================================================

``results/`` and ``.tools/`` are in the checkout; without one, in the site's folder.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from plumbline.core.errors import Fault, WrongOption, with_code

_PACKAGE = Path(__file__).resolve().parents[1]
#: Whether this is a checkout of the project, and not an installed package.
IS_CHECKOUT = not (_PACKAGE / "shipped").is_dir()
#: The folder with all that is shipped: the project's root folder, or part of the package.
ROOT = _PACKAGE.parents[1] if IS_CHECKOUT else _PACKAGE / "shipped"
SETTINGS = ROOT / "reframe" / "settings.py"

#: The folders of a site, each over the shipped one of the same name.
OF_SITE = ("systems", "spack-env", "reference", "checks")


@dataclass(frozen=True)
class Layers:
    """A folder of the site over the shipped one: a file of the site overrides the shipped file of
    the same name.

    :ivar folders: the site's first, to which all is written.
    """

    folders: tuple[Path, ...]

    @property
    def own(self) -> Path:
        """The site's folder."""
        return self.folders[0]

    def find(self, name: str) -> Path:
        """Return the file or folder of a name that counts: the site's, or the shipped one. If
        neither exists, it is where the site's would be."""
        return next((path for path in self.all(name)), self.own / name)

    def all(self, name: str) -> list[Path]:
        """Return all existing files or folders of a name, the site's first."""
        return [folder / name for folder in self.folders if (folder / name).exists()]

    def files(self, pattern: str) -> list[Path]:
        """Return the files that match a pattern and count, sorted by their names."""
        found = {
            str(path.relative_to(folder)): path
            for folder in reversed(self.folders)
            for path in folder.glob(pattern)
        }
        return [found[name] for name in sorted(found)]

    def overriding(self) -> list[tuple[Path, Path]]:
        """Return the site's files that override a shipped one, each with that one."""
        own, shipped = self.folders[0], self.folders[1:]
        return [
            (path, folder / path.relative_to(own))
            for path in sorted(own.rglob("*"))
            for folder in shipped
            if path.is_file() and (folder / path.relative_to(own)).is_file()
        ]

    def __str__(self) -> str:
        return " and ".join(map(str, self.folders))


#: One folder, or that of a site over the shipped one.
Folder = Path | Layers


def layers_of(folder: Folder) -> Layers:
    """Return a folder as layers."""
    return folder if isinstance(folder, Layers) else Layers((folder,))


def _folder(variable: str, default: Path) -> Path:
    path = Path(os.environ.get(variable) or default).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise Fault(
            f"{variable}={path}: this is a file: set the variable to a folder",
            code="files.not-a-folder",
        )
    return in_utf8(path)


def in_utf8(path: Path) -> Path:
    """Return a path whose name is text: ReFrame and DuckDB read no other.

    :raises WrongOption: if it is not UTF-8, or the locale of this process is not.
    """
    if any("\ud800" <= char <= "\udfff" for char in str(path)):
        raise WrongOption(
            f"{path}: this name is not UTF-8 text here: rename the folder or file, or "
            "set LC_ALL=C.UTF-8"
        )
    return path


def _usual_site() -> Path:
    return ROOT / "site" if IS_CHECKOUT else Path("~/plumbline").expanduser()


def site() -> Path:
    """Return the folder of the site's own files, which need not exist.

    :raises Fault: if it is a file, as with each folder that a variable sets.
    """
    return _folder("PLUMBLINE_SITE", _usual_site())


def missing_site() -> list[str]:
    """Return a line if the site's folder is another than by default and does not exist."""
    if site().exists() or site() == _usual_site().absolute():
        return []
    message = (
        f"PLUMBLINE_SITE={site()}: this folder does not exist, so nothing of the site is used: "
        f"correct the variable, or create the folder with `plumbline site {site()}`"
    )
    return [with_code(message, "input.no-site-folder")]


def _layers(name: str) -> Layers:
    return Layers(tuple(dict.fromkeys([site() / name, ROOT / name])))


def systems() -> Layers:
    """Return the folders of the system files."""
    return _layers("systems")


def reference() -> Layers:
    """Return the folders of the reference tables."""
    return _layers("reference")


def spack_env() -> Layers:
    """Return the folders of the Spack environments."""
    return _layers("spack-env")


def checks() -> list[str]:
    """Return the files and folders of the checks, as ReFrame's ``-c`` takes them."""
    layers = _layers("checks")
    hidden = {shipped for _, shipped in layers.overriding()}
    *_, shipped = layers.folders
    found = [shipped]
    if any(path.parent == shipped and path.suffix == ".py" for path in hidden):
        found = [path for path in sorted(shipped.glob("*.py")) if path not in hidden]
    own = [layers.own] if layers.own != shipped and any(layers.own.glob("*.py")) else []
    return [str(path) for path in [*found, *own]]


def overrides() -> list[str]:
    """Return a line for each file of the site that counts in place of a shipped one."""
    lines = []
    for name in OF_SITE:
        for own, shipped in _layers(name).overriding():
            registers = name == "reference" and own.suffix == ".yaml"
            merged = registers or own.parent == site() / "spack-env" / "config"
            lines.append(f"{own}: {'is merged into' if merged else 'overrides'} {shipped}")
    return lines


def results() -> Path:
    """Return the folder of sessions, records and ReFrame's own store."""
    return _folder("PLUMBLINE_RESULTS", _home() / "results")


def tools() -> Path:
    """Return the install root of the providers: the wheels of ``pip``, and ``spack/``."""
    return _folder("PLUMBLINE_TOOLS", _home() / ".tools")


def _home() -> Path:
    return ROOT if IS_CHECKOUT else site()


def scratch() -> Path:
    """Return the scratch folder of the system ``local``."""
    return _folder("PLUMBLINE_SCRATCH", Path("/var/tmp"))


def locks() -> Path:
    """Return the folder of the lock of all sessions and users on this host."""
    default = Path("/run/lock")
    shared = stat.S_IWOTH | stat.S_ISVTX
    if not default.is_dir() or default.stat().st_mode & shared != shared:
        default = Path("/tmp")
    return _folder("PLUMBLINE_LOCKS", default)
