"""Spack environments: what ``spack-env/<system>/<toolchain>/`` says, and what its lock holds.

Reads files alone; nothing here runs Spack.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import archspec.cpu
import jsonschema

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import near
from plumbline.reference.tables import read_yaml

MANIFEST, LOCK, SITE = "spack.yaml", "spack.lock", "site.yaml"

#: Key in a lock of what it was concretized from; Spack leaves alone what it does not know.
STAMP = "plumbline"


@dataclass(frozen=True)
class PackageNode:
    """One package of a lock.

    :ivar hash: Spack's DAG hash: of the package, its options and all that it is built with.
    :ivar prefix: where an external lies, empty for what Spack builds.
    :ivar compilers: paths of an external compiler's executables by language.
    :ivar uses: virtual package (``c``, ``mpi`` ...) -> hash of what provides it.
    :ivar dependencies: hashes of everything that it needs.
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
        """Name and version as Spack writes them."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Lock:
    """A ``spack.lock``: one complete solution of a manifest.

    :ivar roots: hashes of what the manifest asks for, in its order.
    :ivar sha256: of the file.
    :ivar solution: SHA-256 of the solution alone, however the file is laid out.
    :ivar stamp: digest of what it was concretized from, and of the solution; empty without one.
    :ivar edited: what does not have the content that its hash was made of.
    """

    path: Path
    roots: tuple[str, ...]
    nodes: dict[str, PackageNode]
    sha256: str
    solution: str
    stamp: dict
    edited: tuple[str, ...] = ()

    def provided(self, node: PackageNode, virtual: str) -> PackageNode | None:
        """What a package has a virtual one from (GCC for ``c``), ``None`` if it needs none."""
        digest = node.uses.get(virtual)
        return self.nodes[digest] if digest else None


@dataclass(frozen=True)
class Environment:
    """The Spack environment of one system's toolchain."""

    system: str
    toolchain: str

    @property
    def name(self) -> str:
        """As the command line has it."""
        return f"{self.system}:{self.toolchain}"

    @property
    def folder(self) -> Path:
        """Where its manifest and its lock lie."""
        return paths.spack_env() / self.system / self.toolchain

    @property
    def manifest(self) -> Path:
        """Its ``spack.yaml``."""
        return self.folder / MANIFEST

    def content(self) -> dict:
        """The manifest's section ``spack``.

        :raises Fault: if it cannot be read.
        """
        content = read_yaml(self.manifest)
        if not isinstance(content, dict) or not isinstance(content.get("spack"), dict):
            raise Fault(
                f"{self.manifest}: no section `spack` at its top", code="spack.wrong-manifest"
            )
        return _valid(content["spack"], "manifest", self.manifest)

    def included(self) -> list[Path]:
        """The files that the manifest includes, the one that overrides the others first.

        :raises Fault: if one is not there, or is named in a way that would not travel.
        """
        return [path for path, there in self._includes() if there]

    def _includes(self) -> Iterator[tuple[Path, bool]]:
        for entry in self.content().get("include", []):
            optional = isinstance(entry, dict) and bool(entry.get("optional"))
            told = entry["path"] if isinstance(entry, dict) else entry
            if told.startswith("/") or re.search(r"[$~:]", told):
                raise Fault(
                    f"{self.manifest}: include {told!r} is no path relative to this file",
                    code="spack.wrong-manifest",
                )
            path = (self.folder / told).resolve()
            if not path.is_file() and not optional:
                raise Fault(
                    f"{self.manifest}: include {told}: {path} is not there",
                    code="spack.wrong-manifest",
                )
            yield path, path.is_file()

    def configuration(self, section: str) -> dict[str, dict]:
        """One section of the included files, merged as Spack merges them.

        :raises Fault: if a file cannot be read.
        """
        merged: dict = {}
        for path in reversed(self.included()):
            content = _valid(read_yaml(path), "included", path) or {}
            given = {
                key: value for key, value in content.items() if key.removesuffix(":") == section
            }
            merged = _merged(given, {section: merged})[section]
        return merged

    def roots(self) -> list[str]:
        """The root specs, matrices written out.

        :raises Fault: if the manifest cannot be read.
        """
        found: list[str] = []
        for entry in self.content()["specs"]:
            columns = [[entry]] if isinstance(entry, str) else entry["matrix"]
            found += [" ".join(cells) for cells in itertools.product(*columns)]
        return found

    def lock(self) -> Lock | None:
        """The lock that is kept beside the manifest, ``None`` where there is none.

        :raises Fault: if it cannot be read.
        """
        path = self.folder / LOCK
        return read_lock(path) if path.is_file() else None

    def digest(self, packages: set[str], *detected: Path) -> str:
        """Of everything that a lock follows from: the manifest, what it includes, our recipes of
        the lock's packages, and the commits of Spack and its packages.

        :arg packages: names of the packages in the lock.
        :arg detected: further files that the manifest is made to include.
        :raises Fault: if a file cannot be read.
        """
        included = [*self.included(), *detected]
        recipes = paths.spack_env() / "repo" / "spack_repo" / "plumbline"
        settings = sorted((paths.spack_env() / "config").glob("*.yaml"))
        folders = [recipes / "packages" / re.sub(r"\W", "_", name) for name in sorted(packages)]
        parts = {
            "manifest": self.content(),
            "included": [read_yaml(path) for path in included],
            "pins": {name: pin["commit"] for name, pin in pins().items()},
            "settings": [read_yaml(path) for path in settings],
            "recipes": [
                [f"{folder.name}/{path.name}", path.read_text(encoding="utf-8")]
                for folder in [recipes, *folders]
                for path in sorted(folder.glob("*"))
                if path.is_file()
            ],
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def outdated(self, lock: Lock, *detected: Path) -> str | None:
        """Why a lock is not what the manifest asks for now, ``None`` if it is: it was edited, or
        concretized from something else.

        :arg detected: further files that the manifest is made to include.
        :raises Fault: if a file cannot be read.
        """
        if lock.edited:
            told = ", ".join(lock.edited)
            return f"{LOCK} was edited: the hash of {told} is not the hash of what it says"
        if lock.stamp and lock.stamp.get("solution") != lock.solution:
            return f"{LOCK} was edited after it was concretized"
        names = {node.name for node in lock.nodes.values()}
        if lock.stamp.get("digest") != self.digest(names, *detected):
            return f"{LOCK} was made from another manifest, other included files, recipes or pins"
        return None


@functools.cache
def _schema(part: str) -> jsonschema.Draft7Validator:
    text = Path(__file__).with_name("spack_env.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft7Validator(json.loads(text)["definitions"][part])


def _valid(content, part: str, path: Path):
    """A file's content, once it has the shape that it must have.

    :arg part: ``manifest``, or ``included`` for a file that a manifest includes.
    :raises Fault: naming file, place and fault.
    """
    for fault in _schema(part).iter_errors(content):
        raise Fault(f"{path}: {fault.json_path}: {fault.message}", code="spack.wrong-manifest")
    return content


def every(system: str | None = None) -> list[Environment]:
    """The environments of the tree, or those of one system."""
    pattern = f"{system or '*'}/*/{MANIFEST}"
    found = sorted(paths.spack_env().glob(pattern))
    return [Environment(path.parent.parent.name, path.parent.name) for path in found]


def named(name: str) -> list[Environment]:
    """The environments that ``SYSTEM`` or ``SYSTEM:TOOLCHAIN`` names.

    :raises Fault: if there are none; the text says which there are.
    """
    system, colon, toolchain = name.partition(":")
    of_system = every(system) if re.fullmatch(r"[\w.-]+", system) else []
    if not of_system:
        told = near(system, dict.fromkeys(known.system for known in every()))
        raise Fault(
            f"{paths.spack_env()}: no Spack environment for system {system!r}; {told}",
            code="input.unknown-name",
        )
    found = [known for known in of_system if not colon or known.toolchain == toolchain]
    if not found:
        told = near(toolchain, [known.toolchain for known in of_system])
        raise Fault(
            f"system {system}: no toolchain {toolchain!r}; {told}", code="input.unknown-name"
        )
    return found


@functools.cache
def _pins(path: Path) -> dict[str, dict[str, str]]:
    content = read_yaml(path)
    for name in ("spack", "packages"):
        pin = content.get(name) if isinstance(content, dict) else None
        if not isinstance(pin, dict) or not re.fullmatch(r"[0-9a-f]{40}", str(pin.get("commit"))):
            raise Fault(
                f"{path}: {name} needs git, tag and the commit's 40 digits",
                code="spack.wrong-manifest",
            )
    return content


def pins() -> dict[str, dict[str, str]]:
    """Spack and its packages: name -> git address, tag and commit.

    :raises Fault: if they cannot be read.
    """
    return _pins(paths.spack_env() / "pins.yaml")


def read_lock(path: Path) -> Lock:
    """A lock that Spack wrote.

    :raises Fault: if it is none.
    """
    try:
        data = path.read_bytes()
        content = json.loads(data)
        nodes = {
            digest: _node(digest, fields) for digest, fields in content["concrete_specs"].items()
        }
        roots = tuple(root["hash"] for root in content["roots"])
        stamp = dict(content.get(STAMP) or {})
        edited = tuple(_edited(content))
    except OSError as err:
        raise Fault(f"{path}: {err.strerror}", code="input.unreadable-file") from None
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise Fault(
            f"{path}: no lock of Spack's ({type(err).__name__}: {err}); `plumbline lock` makes it",
            code="spack.no-lock",
        ) from None
    return Lock(
        path, roots, nodes, hashlib.sha256(data).hexdigest(), solution(content), stamp, edited
    )


def _edited(content: dict) -> Iterator[str]:
    """What of a lock has not got the content that its hash was made of, or is not there."""
    specs = content["concrete_specs"]
    for digest, fields in specs.items():
        if not digest == fields.get("hash") == dag_hash(fields):
            yield f"{fields['name']}@{fields['version']}"
    for needed in [
        *content["roots"],
        *(d for f in specs.values() for d in f.get("dependencies", [])),
    ]:
        if needed["hash"] not in specs:
            yield f"/{needed['hash']}, which is not in it"


def dag_hash(fields: dict) -> str:
    """Spack's hash of one package of a lock, which has its dependencies' hashes among its fields.

    As Spack 1.1 makes it (``Spec.spec_hash`` in spec.py): base32 of the SHA-1 of the fields as
    compact JSON, in their order. Of an external the namespace is no part, since Spack hashes
    externals (externals.py) before it gives them one.
    """
    apart = {"hash", "namespace"} if fields.get("external") else {"hash"}
    own = {key: value for key, value in fields.items() if key not in apart}
    text = json.dumps(own, separators=(",", ":"))
    return base64.b32encode(hashlib.sha1(text.encode()).digest()).decode().lower()


def solution(content: dict) -> str:
    """The SHA-256 of what a lock's content says, without Spack's and our notes on it."""
    parts = [content["roots"], content["concrete_specs"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _merged(higher, lower):
    """Two values of Spack's configuration as one: mappings by their keys, lists one after the
    other, and what has a second colon (``externals::``) in the other's place."""
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
    """The processor family that a target is of: ``x86_64`` for ``zen3``."""
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


#: Feature of a ReFrame environment -> the package that brings its programs.
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

#: Programming model of BabelStream, a root spec and a build for each -> its program.
MODELS = {
    "cuda": "cuda-stream",
    "hip": "hip-stream",
    "omp": "omp-stream",
    "serial": "serial-stream",
}


def faults(systems: dict[str, dict]) -> Iterator[str]:
    """What is wrong between the systems and their Spack environments.

    :arg systems: name -> content of the system's file.
    """
    wanted = {
        Environment(system, environment["name"]): environment
        for system, content in systems.items()
        for environment in content.get("environments", [])
        if environment.get("extras", {}).get("provider") == "spack"
    }
    there = every()
    for environment in wanted:
        if environment not in there:
            yield (
                f"{paths.systems() / environment.system}.yaml: environment "
                f"{environment.toolchain}: takes its programs from Spack, and "
                f"{environment.manifest} is not there"
            )
    for environment in there:
        # A site may keep its system files elsewhere, and not all of ours.
        elsewhere = paths.systems() != paths.ROOT / "systems"
        if environment.system not in systems and elsewhere:
            continue
        if environment not in wanted:
            yield (
                f"{environment.manifest}: no environment {environment.toolchain} with "
                f"extras.provider spack in {paths.systems() / environment.system}.yaml"
            )
            continue
        try:
            for fault in _faults_of(environment, wanted[environment]):
                yield f"{environment.manifest}: {fault}"
        except Fault as err:
            yield from str(err).splitlines()
    yield from _not_run(wanted, there)


def _not_run(wanted: dict[Environment, dict], there: list[Environment]) -> Iterator[str]:
    """What Spack builds for a system and no check of the system can run: ReFrame gives a check
    no test case, and says nothing, where no environment has its benchmark among its features."""
    built: dict[tuple[str, str], list[str]] = {}
    features: dict[str, set[str]] = {}
    for environment, of_reframe in wanted.items():
        # Where they are detected, what is built is what runs.
        if environment not in there or of_reframe.get("extras", {}).get("detect"):
            continue
        features.setdefault(environment.system, set()).update(of_reframe.get("features", []))
        with contextlib.suppress(Fault):  # of its manifest, which is reported by itself
            for package in _packages(environment):
                built.setdefault((environment.system, package), []).append(environment.toolchain)
    for (system, package), toolchains in built.items():
        for feature in (feature for feature, name in PACKAGES.items() if name == package):
            if feature not in features[system]:
                yield (
                    f"{paths.systems() / system}.yaml: no environment has the feature {feature}, "
                    f"so no check runs {package}, which Spack builds for {', '.join(toolchains)}: "
                    f"add the feature to one of them"
                )


def _packages(environment: Environment) -> set[str]:
    """The names of its root packages."""
    return {re.split(r"[^\w-]", root, maxsplit=1)[0] for root in environment.roots()}


def _faults_of(environment: Environment, of_reframe: dict) -> Iterator[str]:
    packages = environment.configuration("packages")
    yield from _not_provided(environment, of_reframe, packages)
    yield from _not_pinned(environment, packages)
    yield from _wrong_roots(environment, packages)
    for path in [environment.manifest, *environment.included()]:
        if path.name != SITE:
            for told in _fixed_paths(read_yaml(path)):
                yield f"{path.name}: {told} is a path of one machine, outside an external's prefix"
    kept = environment.lock()
    if kept is None:
        yield f"no {LOCK} beside it: plumbline lock {environment.name}"
    elif why := environment.outdated(kept):
        yield f"{why}: plumbline lock {environment.name}"


def _not_provided(environment: Environment, of_reframe: dict, packages: dict) -> Iterator[str]:
    """What the ReFrame environment promises, and the Spack environment does not have."""
    features, roots = set(of_reframe.get("features", [])), environment.roots()
    names = _packages(environment)
    for feature in sorted(features & set(PACKAGES)):
        if PACKAGES[feature] not in names:
            yield f"feature {feature} of its ReFrame environment needs {PACKAGES[feature]}"
    for model in sorted(features & set(MODELS)) if "babelstream" in features else []:
        if not any(root.startswith("babelstream") and f"+{model}" in root for root in roots):
            yield f"feature {model} of its ReFrame environment needs a root babelstream+{model}"
    externals = [one for package in packages.values() for one in package.get("externals", [])]
    modules = {module for external in externals for module in external.get("modules", [])}
    for module in of_reframe.get("modules", []):
        if module not in modules:
            yield f"module {module} of its ReFrame environment is of no external"


def _not_pinned(environment: Environment, packages: dict) -> Iterator[str]:
    """The root packages of which any version might be built."""
    for name in sorted(_packages(environment)):
        pinned = packages.get(name, {}).get("require", [])
        listed = [pinned] if isinstance(pinned, str) else pinned
        specs = [str(one.get("spec") if isinstance(one, dict) else one) for one in listed]
        if not specs or not all(spec.startswith("@=") for spec in specs):
            yield f"root {name} has no pinned version: packages: {name}: require: ['@=...']"


def _wrong_roots(environment: Environment, packages: dict) -> Iterator[str]:
    """The roots with unknown toolchains, or without what a foreign target needs."""
    toolchains = environment.configuration("toolchains")
    targets = environment.content().get("concretizer", {}).get("targets", {})
    foreign = not targets.get("host_compatible", True)
    for root in environment.roots():
        for used in re.findall(r" %([\w-]+)", root):
            if used not in toolchains:
                told = near(used, toolchains)
                yield f"root {root}: no toolchain {used!r} in its included files; {told}"
        if foreign and " arch=" not in root:
            yield f"root {root}: host_compatible is false, so it needs arch=linux-<os>-<target>"
    if foreign and not packages.get("glibc", {}).get("externals"):
        yield "no external glibc: include ../../common/<os>-<family>.yaml"


def _fixed_paths(value, key: str = "") -> Iterator[str]:
    """The absolute paths in a file's content that are not of an external."""
    if key in ("prefix", "extra_attributes"):
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _fixed_paths(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _fixed_paths(inner, key)
    elif isinstance(value, str) and value.startswith("/"):
        yield value
