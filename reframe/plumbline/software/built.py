"""An environment that is built: its programs, and whether they are still what was built."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from plumbline.core.errors import Fault
from plumbline.core.process import capture
from plumbline.software import spack
from plumbline.software.environments import Lock, PackageNode
from plumbline.software.programs import program_in, programs_of

MARK = "built.json"


@dataclass(frozen=True)
class Built:
    """An environment that is built.

    :ivar view: the folder with its programs.
    :ivar lock: the lock that it was installed from.
    :ivar mark: the content of ``built.json``.
    """

    view: Path
    lock: Lock
    mark: dict

    def damaged(self) -> dict[str, str]:
        """Return what is damaged: hash of the root package -> what is wrong with it."""
        found = {
            digest: f"{self.lock.nodes[digest].spec} is not installed"
            for digest in self.lock.roots
            if not self.prefix_of(self.lock.nodes[digest]).is_dir()
        }
        for program, node in programs_of(self.lock):
            path = program_in(self.view, program)
            if path is None:
                found[node.hash] = f"{self.view} has no {program} of {node.spec}"
            elif not path.resolve().is_relative_to(self.prefix_of(node)):
                found[node.hash] = f"{path} is not a link to {self.prefix_of(node)}"
            elif self._changed(program, path):
                found[node.hash] = f"{path.resolve()} was changed after it was built"
        for path in self.lost():
            # Of none if the install root was moved: then the programs are lost as well.
            if owner := self._owner(path):
                found[owner.hash] = f"{path} was deleted"
        return found | {digest: f"the files of {spec} were deleted" for digest, spec in
                        self.emptied().items()}  # fmt: skip

    def emptied(self) -> dict[str, str]:
        """Return the packages whose files were deleted and that Spack would take as installed:
        hash -> spec."""
        return {
            digest: self.lock.nodes[digest].spec
            for digest in self._installed()
            if not any(map(Path.is_file, self.prefix_of(self.lock.nodes[digest]).rglob("*")))
        }

    def require_in_place(self) -> None:
        """Check that Spack takes the packages from this install root.

        :raises Fault: if it was moved or copied: Spack would use those where it was.
        """
        for digest, path in self._installed().items():
            if path.resolve() != self.prefix_of(self.lock.nodes[digest]):
                raise Fault(
                    f"{path} belongs to no package of {self.lock.path}: the install root was "
                    f"moved or copied: remove {spack.root() / 'cache'} and build again",
                    code="build.failed",
                )

    def _installed(self) -> dict[str, Path]:
        """Return what Spack's database has of the lock as installed: hash -> prefix."""
        try:
            database = json.loads((spack.store() / ".spack-db" / "index.json").read_text())
            entries = database["database"]["installs"].items()
            installed = {digest: Path(e["path"]) for digest, e in entries if e["installed"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        built = [digest for digest, node in self.lock.nodes.items() if not node.prefix]
        return {digest: installed[digest] for digest in built if digest in installed}

    def lost(self) -> list[Path]:
        """Return the libraries of the programs that were deleted: the loader would take others,
        such as the system's."""
        libraries = map(Path, self.mark.get("libraries", ()))
        return [path for path in libraries if not path.exists()]

    def libraries_of(self, program: Path) -> set[Path]:
        """Return the libraries that Spack built and a program is linked with."""
        printed = capture("ldd", str(program)) or ""
        paths = map(Path, re.findall(r" => (/\S+)", printed))
        built = [self.prefix_of(node) for node in self.lock.nodes.values() if not node.prefix]
        return {path for path in paths if any(map(path.is_relative_to, built))}

    def altered(self, program: str, path: Path) -> str | None:
        """Return how what would run differs from what was built, or ``None``."""
        for library in self.lost():
            return f"{library}, which {program} may need, was deleted"
        if self._changed(program, path):
            return f"{path.resolve()} is not the file that was built (see its SHA-256 in {MARK})"
        return None

    def _changed(self, program: str, path: Path) -> bool:
        built = self.mark["programs"].get(program)
        return bool(built) and spack.sha256(path) != built

    def package_of(self, path: Path) -> tuple[PackageNode, PackageNode | None]:
        """Return the package that an installed file belongs to, and its MPI or ``None``.

        :raises Fault: if it belongs to none of the lock.
        """
        if node := self._owner(path):
            return node, self.lock.provided(node, "mpi")
        raise Fault(
            f"{path} belongs to no package of {self.lock.path}: if the install root was moved, "
            f"remove {spack.root() / 'cache'} and build again",
            code="build.failed",
        )

    def _owner(self, path: Path) -> PackageNode | None:
        built = (node for node in self.lock.nodes.values() if not node.prefix)
        return next((node for node in built if path.is_relative_to(self.prefix_of(node))), None)

    def prefix_of(self, node: PackageNode) -> Path:
        """Return the prefix of a package."""
        if node.prefix:
            return Path(node.prefix)
        return spack.store() / f"{node.name}-{node.version}-{node.hash[:7]}"
