"""Spack environments: the manifests of ``spack-env/<system>/<toolchain>/``, and their locks.

Only reads files; nothing here runs Spack.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import archspec.cpu
import jsonschema

from plumbline.core import paths, schemas
from plumbline.core.errors import Fault, UnknownName, UnreadableFile
from plumbline.core.text import suggest
from plumbline.core.yamlfile import read_yaml

MANIFEST, LOCK, SITE = "spack.yaml", "spack.lock", "site.yaml"

#: Our key in a lock, for what it was concretized from; Spack ignores unknown keys.
STAMP = "plumbline"
#: Files beside a recipe that editors, patch(1) and NFS leave there.
_LEFTOVER = re.compile(r"^\.|~$|\.(orig|rej)$")


#: Virtual packages that an environment's externals provide.
TOOLCHAIN = ("c", "cxx", "fortran", "mpi")


@dataclass(frozen=True)
class PackageNode:
    """One package of a lock.

    :ivar hash: Spack's DAG hash of the package, its options and all that it is built with.
    :ivar prefix: prefix of an external; empty for what Spack builds.
    :ivar compilers: language -> path of an external compiler's executable.
    :ivar uses: virtual package (``c``, ``mpi`` ...) -> hash of its provider.
    :ivar dependencies: hashes of its dependencies.
    """

    name: str
    version: str
    hash: str
    namespace: str
    platform: str
    target: str
    prefix: str
    modules: tuple[str, ...]
    compilers: dict[str, str]
    uses: dict[str, str]
    dependencies: tuple[str, ...]
    parameters: dict

    @property
    def spec(self) -> str:
        """Name and version in Spack's notation."""
        return f"{self.name}@{self.version}"

    def is_external(self, entry: dict) -> bool:
        """Return whether it is an external of a list in Spack's configuration."""
        prefix, modules = entry.get("prefix", ""), tuple(entry.get("modules", ()))
        if modules and modules == self.modules:
            return True
        return bool(prefix) and os.path.normpath(prefix) == os.path.normpath(self.prefix)


@dataclass(frozen=True)
class Lock:
    """A ``spack.lock``: one complete solution of a manifest.

    :ivar roots: hashes of the root specs, in the manifest's order.
    :ivar sha256: SHA-256 of the file.
    :ivar solution: SHA-256 of the solution alone, whatever the file's layout.
    :ivar stamp: digests of what it was concretized from, and of the solution; may be empty.
    """

    path: Path
    roots: tuple[str, ...]
    nodes: dict[str, PackageNode]
    sha256: str
    solution: str
    stamp: dict

    def provided(self, node: PackageNode, virtual: str) -> PackageNode | None:
        """Return the provider of a virtual package (GCC for ``c``), ``None`` if it needs none."""
        digest = node.uses.get(virtual)
        return self.nodes[digest] if digest else None


@dataclass(frozen=True)
class Environment:
    """The Spack environment of one system's toolchain, which reads its manifest once."""

    system: str
    toolchain: str

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return f"{self.system}:{self.toolchain}"

    @property
    def manifest(self) -> Path:
        """Its ``spack.yaml``."""
        return self._file(MANIFEST)

    def _file(self, name: str) -> Path:
        """Return the file of a path relative to that of the manifest: a site's file overrides the
        shipped one, also of what a manifest includes."""
        path = os.path.normpath(f"{self.system}/{self.toolchain}/{name}")
        return paths.spack_env().find(path)

    @functools.cached_property
    def content(self) -> dict:
        """The manifest's section ``spack``.

        :raises Fault: if it cannot be read.
        """
        content = read_yaml(self.manifest)
        if not isinstance(content, dict) or not isinstance(content.get("spack"), dict):
            raise Fault(
                f"{self.manifest}: no top-level section `spack`", code="spack.wrong-manifest"
            )
        return _valid(content["spack"], "manifest", self.manifest)

    def included(self) -> list[Path]:
        """Return the existing files that the manifest includes, the overriding ones first.

        :raises Fault: if one does not exist and is not optional, or its path is not relative.
        """
        found = []
        for entry in self.content.get("include", []):
            optional = isinstance(entry, dict) and entry.get("optional")
            name = entry["path"] if isinstance(entry, dict) else entry
            if name.startswith("/") or re.search(r"[$~:]", name):
                raise Fault(
                    f"{self.manifest}: the path {name!r} in `include` must be relative to this "
                    f"file",
                    code="spack.wrong-manifest",
                )
            path = self._file(name).resolve()
            if path.is_file():
                found.append(path)
            elif not optional:
                raise Fault(
                    f"{self.manifest}: the path {name} in `include`: {path} does not exist",
                    code="spack.wrong-manifest",
                )
        return found

    def configuration(self, section: str) -> dict[str, dict]:
        """Return one section of the included files and the settings, merged as Spack merges them.

        :raises Fault: if a file cannot be read.
        """
        merged: dict = {}
        settings = [folder / f"{section}.yaml" for folder in config_folders()]
        for path in [*filter(Path.is_file, settings), *reversed(self.included())]:
            content = _valid(read_yaml(path), "included", path) or {}
            own = {key: value for key, value in content.items() if key.removesuffix(":") == section}
            merged = _merged(own, {section: merged})[section]
        return merged

    def roots(self) -> list[str]:
        """Return the root specs, with matrices expanded.

        :raises Fault: if the manifest cannot be read.
        """
        found: list[str] = []
        for entry in self.content["specs"]:
            columns = [[entry]] if isinstance(entry, str) else entry["matrix"]
            found += [" ".join(cells) for cells in itertools.product(*columns)]
        return found

    def root_packages(self) -> set[str]:
        """Return the names of the root packages.

        :raises Fault: if the manifest cannot be read.
        """
        return {re.split(r"[^\w-]", root, maxsplit=1)[0] for root in self.roots()}

    def lock(self) -> Lock | None:
        """Return the lock of the manifest, or ``None`` if there is none.

        :raises Fault: if it cannot be read.
        """
        path = self._file(LOCK)
        return read_lock(path) if path.is_file() else None

    def digest(self, packages: set[str], *detected: Path) -> str:
        """Return the digest of all that a lock depends on: the manifest, what it includes, our
        recipes of the lock's packages, and the commits of Spack and its packages.

        :arg packages: names of the packages in the lock.
        :arg detected: further included files.
        :raises Fault: if a file cannot be read.
        """
        included = [*self.included(), *detected]
        settings = [path for folder in config_folders() for path in sorted(folder.glob("*.yaml"))]
        repos = [repo for found in paths.spack_env().folders[::-1]
                 for repo in sorted(found.glob("repo/spack_repo/*"))]  # fmt: skip
        modules = [re.sub(r"\W", "_", name) for name in sorted(packages)]
        recipes = [
            folder
            for repo in repos
            for folder in [repo, *(repo / "packages" / module for module in modules)]
        ]
        parts = {
            "manifest": self.content,
            "included": [read_yaml(path) for path in included],
            "pins": {name: pin["commit"] for name, pin in pins().items()},
            "settings": [read_yaml(path) for path in settings],
            "recipes": [
                # A patch may have any encoding.
                [f"{folder.name}/{path.name}", path.read_text("utf-8", "surrogateescape")]
                for folder in recipes
                for path in sorted(folder.glob("*"))
                if path.is_file() and not _LEFTOVER.search(path.name)
            ],
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def outdated(self, lock: Lock, *detected: Path) -> str | None:
        """Return why a lock does not match the manifest, or ``None`` if it does: it was edited, or
        made from something else.

        :arg detected: further included files.
        :raises Fault: if a file cannot be read.
        """
        if lock.stamp and lock.stamp.get("solution") != lock.solution:
            return f"{LOCK} was edited after it was concretized"
        names = {node.name for node in lock.nodes.values()}
        if lock.stamp.get("digest") != self.digest(names, *detected):
            return f"{LOCK} was made from another manifest, other included files, recipes or pins"
        return None

    def replaced(self, lock: Lock) -> str | None:
        """Return which compiler or MPI of a lock is not the environment's own, or ``None``: Spack
        builds it though there are externals of it, or found it on PATH.

        :raises Fault: if a file cannot be read.
        """
        packages = self.configuration("packages")
        # A compiler may be built with an older one that is external.
        own = {
            node.name
            for node in lock.nodes.values()
            if any(map(node.is_external, packages.get(node.name, {}).get("externals", [])))
        }
        for node in lock.nodes.values():
            for used in filter(None, (lock.provided(node, virtual) for virtual in TOOLCHAIN)):
                if used.name not in own and packages.get(used.name, {}).get("externals"):
                    how = f"found in {used.prefix}" if used.prefix else "would be built by Spack"
                    return (
                        f"{used.spec} {how}, as none of the listed externals of {used.name} "
                        f"fits: correct their versions and targets, and make the package "
                        f"`buildable: false`"
                    )
        return None


@functools.cache
def _schema(part: str) -> jsonschema.Draft7Validator:
    text = Path(__file__).with_name("spack_env.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft7Validator(json.loads(text)["definitions"][part])


def _valid(content, part: str, path: Path):
    """Return a file's content after validation.

    :arg part: ``manifest``, or ``included`` for a file that a manifest includes.
    :raises Fault: if it does not match the schema.
    """
    for place, fault in schemas.faults(_schema(part), content):
        raise Fault(f"{path}: {schemas.prefix(place)}{fault}", code="spack.wrong-manifest")
    return content


def config_folders() -> list[Path]:
    """Return the folders with Spack's settings: the shipped one, and the site's, which overrides
    it."""
    return paths.spack_env().all("config")[::-1]


def list_environments(system: str | None = None) -> list[Environment]:
    """Return all environments, or those of one system."""
    found = paths.spack_env().files(f"{system or '*'}/*/{MANIFEST}")
    return [Environment(path.parent.parent.name, path.parent.name) for path in found]


def find(name: str) -> list[Environment]:
    """Return the environments of ``SYSTEM`` or ``SYSTEM:TOOLCHAIN``.

    :raises Fault: if there are none.
    """
    system, colon, toolchain = name.partition(":")
    of_system = list_environments(system) if re.fullmatch(r"[\w.-]+", system) else []
    if not of_system:
        systems = suggest(system, dict.fromkeys(known.system for known in list_environments()))
        raise UnknownName(
            f"{paths.spack_env()}: no Spack environment for system {system!r}; {systems}"
        )
    found = [known for known in of_system if not colon or known.toolchain == toolchain]
    if not found:
        toolchains = suggest(toolchain, [known.toolchain for known in of_system])
        raise UnknownName(f"system {system} has no toolchain {toolchain!r}; {toolchains}")
    return found


@functools.cache
def _pins(path: Path) -> dict[str, dict[str, str]]:
    content = read_yaml(path)
    for name in ("spack", "packages"):
        pin = content.get(name) if isinstance(content, dict) else None
        if not isinstance(pin, dict) or not re.fullmatch(r"[0-9a-f]{40}", str(pin.get("commit"))):
            raise Fault(
                f"{path}: {name} needs the keys git, tag and commit (40 hexadecimal digits)",
                code="spack.wrong-manifest",
            )
    return content


def pins() -> dict[str, dict[str, str]]:
    """Return the versions of Spack and its packages: name -> git address, tag and commit.

    :raises Fault: if they cannot be read.
    """
    return _pins(paths.spack_env().find("pins.yaml"))


def read_lock(path: Path) -> Lock:
    """Return the lock in a file.

    :raises Fault: if the file cannot be read, or is not a lock.
    """
    try:
        data = path.read_bytes()
        content = json.loads(data)
        nodes = {
            digest: _node(digest, fields) for digest, fields in content["concrete_specs"].items()
        }
        roots = tuple(root["hash"] for root in content["roots"])
        stamp = dict(content.get(STAMP) or {})
    except OSError as err:
        raise UnreadableFile(f"{path}: {err.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise Fault(
            f"{path}: not a spack.lock ({type(err).__name__}: {err}); create it with `plumbline "
            f"lock`",
            code="spack.no-lock",
        ) from None
    digest = hashlib.sha256(data).hexdigest()
    return Lock(path, roots, nodes, digest, solution(content), stamp)


def solution(content: dict) -> str:
    """Return the SHA-256 of a lock's roots and packages."""
    parts = [content["roots"], content["concrete_specs"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _merged(higher, lower):
    """Return two values of Spack's configuration merged: mappings by key, lists concatenated; a key
    with a second colon (``externals::``) replaces the lower value."""
    if isinstance(higher, dict) and isinstance(lower, dict):
        found = dict(lower)
        for key, value in higher.items():
            name = str(key).removesuffix(":")
            replaces = str(key).endswith(":") or name not in found
            beneath = ({} if isinstance(value, dict) else None) if replaces else found[name]
            found[name] = _merged(value, beneath)
        return found
    if isinstance(higher, list) and isinstance(lower, list):
        return [*higher, *lower]
    return higher


def family(target: str) -> str:
    """Return the processor family of a target: ``x86_64`` for ``zen3``."""
    return archspec.cpu.TARGETS[target].family.name


def _node(digest: str, fields: dict) -> PackageNode:
    external = fields.get("external") or {}
    attributes = external.get("extra_attributes") or {}
    target = fields["arch"]["target"]
    uses, dependencies = {}, []
    for dependency in fields.get("dependencies", []):
        dependencies.append(dependency["hash"])
        for virtual in dependency.get("parameters", {}).get("virtuals", []):
            uses[virtual] = dependency["hash"]
    return PackageNode(
        name=fields["name"],
        version=fields["version"],
        hash=digest,
        namespace=fields["namespace"],
        platform=fields["arch"]["platform_os"],
        target=target["name"] if isinstance(target, dict) else target,
        prefix=external.get("path") or "",
        modules=tuple(external.get("module") or ()),
        compilers=attributes.get("compilers") or {},
        uses=uses,
        dependencies=tuple(dependencies),
        parameters=fields.get("parameters", {}),
    )


#: Feature of a ReFrame environment -> the package that has its programs.
PACKAGES = {
    "babelstream": "babelstream",
    "commscope": "comm-scope",
    "fio": "fio",
    "gpcnet": "gpcnet",
    "hpcc": "hpcc",
    "hpcg": "hpcg",
    "hpl": "hpl",
    "imb": "intel-mpi-benchmarks",
    "ior": "ior",
    "mdtest": "ior",
    "mpigraph": "mpigraph",
    "osu": "osu-micro-benchmarks",
    "stream": "stream",
}

#: Programming model of BabelStream, each with its own root spec -> its program.
MODELS = {
    "cuda": "cuda-stream",
    "hip": "hip-stream",
    "omp": "omp-stream",
    "serial": "serial-stream",
}
