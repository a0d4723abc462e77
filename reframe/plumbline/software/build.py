"""Builds Spack environments, and makes their locks.

A build works on a copy of the manifest in the install root, so the tree stays as it is. What can be
used has a mark, ``built.json``, with the SHA-256 of each program and what could not be built;
nothing without one is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from tabulate import tabulate

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.software import debian, environments, externals, spack
from plumbline.software.environments import (
    LOCK,
    MANIFEST,
    MODELS,
    STAMP,
    Environment,
    Lock,
    PackageNode,
)

MARK = "built.json"

#: The system whose externals no file can know.
HERE = "local"

#: Spack's package -> executables of it that a complete view has; of BabelStream one for each model.
PROGRAMS = {
    "comm-scope": ("comm_scope",),
    "fio": ("fio",),
    "gpcnet": ("network_test", "network_load_test"),
    "hpcc": ("hpcc",),
    "hpcg": ("xhpcg",),
    "hpl": ("xhpl",),
    "intel-mpi-benchmarks": ("IMB-MPI1",),
    "ior": ("ior", "mdtest"),
    "mpigraph": ("mpiGraph",),
    "osu-micro-benchmarks": (
        *("osu_latency", "osu_bw", "osu_bibw", "osu_mbw_mr", "osu_multi_lat"),
        *("osu_allgather", "osu_allreduce", "osu_alltoall", "osu_barrier", "osu_bcast"),
        *("osu_gather", "osu_reduce", "osu_reduce_scatter", "osu_scatter"),
        *("osu_iallgather", "osu_iallreduce", "osu_ialltoall", "osu_ibarrier", "osu_ibcast"),
    ),
    "stream": ("stream_c.exe",),
}

#: Folders of a view that have executables.
_BIN = ("bin", "*/bin", "libexec/osu-micro-benchmarks/mpi/*")


@dataclass(frozen=True)
class Built:
    """An environment that can be used.

    :ivar view: the folder that has its programs.
    :ivar lock: what it was installed from.
    :ivar mark: what ``built.json`` says.
    """

    view: Path
    lock: Lock
    mark: dict

    def damaged(self) -> dict[str, str]:
        """Hash of each root package that is not whole -> what is wrong with it."""
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
                found[node.hash] = f"{path} does not lead to {self.prefix_of(node)}"
            elif self.changed(program):
                found[node.hash] = f"{path.resolve()} was changed after it was built"
        return found

    def changed(self, program: str) -> bool:
        """Whether a program is another file than the one that was built."""
        built, path = self.mark["programs"].get(program), program_in(self.view, program)
        return bool(built) and path is not None and spack.sha256(path) != built

    def package_of(self, path: Path) -> tuple[PackageNode, PackageNode | None]:
        """The package that an installed file is of, and its MPI, ``None`` without one.

        :raises Fault: if it is of none of the lock's.
        """
        for node in self.lock.nodes.values():
            if path.is_relative_to(self.prefix_of(node)) and not node.prefix:
                return node, self.lock.provided(node, "mpi")
        raise Fault(
            f"{path} is of no package in {self.lock.path}: where the install root was moved, "
            f"remove {spack.root() / 'cache'} and build again",
            code="build.failed",
        )

    def prefix_of(self, node: PackageNode) -> Path:
        """Where a package is installed."""
        if node.prefix:
            return Path(node.prefix)
        return spack.store() / f"{node.name}-{node.version}-{node.hash[:7]}"


def programs_of(lock: Lock) -> list[tuple[str, PackageNode]]:
    """The programs that an environment has, or should have, each with its package."""
    found = []
    for digest in lock.roots:
        node = lock.nodes[digest]
        wanted: Iterable[str] = PROGRAMS.get(node.name, ())
        if node.name == "babelstream":
            wanted = [MODELS[model] for model in MODELS if node.parameters.get(model) is True]
        found += [(program, node) for program in wanted]
    return found


def program_in(view: Path, program: str) -> Path | None:
    """Where a view has an executable."""
    for pattern in _BIN:
        for path in sorted(view.glob(f"{pattern}/{program}")):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None


def built(environment: Environment) -> Built | None:
    """An environment that can be used, ``None`` where it is not built."""
    folder = spack.folder_of(environment)
    try:
        mark = dict(json.loads((folder / MARK).read_text(encoding="utf-8")))
        mark |= {part: dict(mark[part]) for part in ("programs", "missing")}
        solved = environments.read_lock(folder / LOCK)
    except (OSError, ValueError, TypeError, KeyError, Fault):
        return None
    return Built(folder / "view", solved, mark)


def why_not(environment: Environment) -> str | None:
    """Why an environment's programs cannot be used, ``None`` if they can.

    :raises Fault: if its manifest cannot be read.
    """
    found = built(environment)
    if found is None:
        return f"Spack environment {environment.name} is not built"
    folder = spack.folder_of(environment)
    if found.mark.get("lock") != found.lock.sha256:
        return f"Spack environment {environment.name}: {found.lock.path} is not what was installed"
    if environment.outdated(found.lock, *_detected(folder)):
        return (
            f"Spack environment {environment.name} was built from another manifest than "
            f"{environment.manifest} is now"
        )
    return None


def build(environment: Environment, jobs: int | None, say: Callable[[str], None]) -> bool:
    """Installs an environment, or finds that it is installed.

    :arg jobs: compilations at once; Spack's own choice if ``None``.
    :returns: whether anything was done.
    :raises Fault: if it fails, or if a package could not be built; the others are used then.
    """
    with spack.locked(say):
        chosen = spack.mirror()
        before = built(environment)
        reason = why_not(environment) or outlived(environment)
        if reason is None:
            say(f"{environment.name}: is built ({spack.folder_of(environment)})")
            return False
        say(f"{environment.name}: {reason if before else 'building'}")
        if chosen:
            spack.check(chosen)
        spack.hold_against_room()
        spack.bootstrap(say)
        began = time.monotonic()
        folder = spack.folder_of(environment)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).unlink(missing_ok=True)
        log = folder / "build.log"
        log.write_text(f"{spack.now()}: {environment.name}\n", encoding="utf-8")
        if environment.system == HERE:
            _equip(environment, say)
        lock = prepared(environment, folder, log, say)
        _hold_against_machine(environment, lock)
        say(f"{environment.name}: installing {len(lock.roots)} root specs; all of it in {log}")
        failure = _install(environment, folder, jobs, log, say)
        same = before and before.lock.sha256 == lock.sha256
        fresh = Built(folder / "view", lock, {"programs": {}})
        damaged = (Built(fresh.view, lock, before.mark) if before and same else fresh).damaged()
        if damaged and not failure:
            # Spack has it in its books, so that it would not install it again.
            say(f"{environment.name}: {'; '.join(damaged.values())}: installing it again")
            again = ["uninstall", "--force", "--yes-to-all", *(f"/{digest}" for digest in damaged)]
            spack.run(again, None, log, say, environment.name)
            failure = _install(environment, folder, jobs, log, say)
            damaged = fresh.damaged()
        if damaged and not failure:
            told = "; ".join(damaged.values())
            raise Fault(
                f"{environment.name}: half installed: {told}\nsee {log}", code="build.failed"
            )
        if failure and (not damaged or damaged.keys() >= set(lock.roots)):
            raise failure
        reasons = failure.reasons if failure else {}
        missing = {digest: reasons.get(digest, why) for digest, why in damaged.items()}
        _mark(environment, folder, fresh, missing)
        if failure:
            specs = ", ".join(lock.nodes[digest].spec for digest in missing)
            raise Fault(
                f"{failure}\n{environment.name}: built without {specs}; the rest is used",
                code="build.failed",
            )
        say(f"{environment.name}: built in {time.monotonic() - began:.0f} s: {fresh.view}")
        return True


def _install(
    environment: Environment, folder: Path, jobs: int | None, log: Path, say: Callable[[str], None]
) -> spack.Failure | None:
    """Installs all that can be; what could not be is no reason to go without the others."""
    words = ["install", "--only-concrete", *([f"-j{jobs}"] if jobs else [])]
    solved = (folder / LOCK).read_bytes()
    try:
        spack.run(words, folder, log, say, environment.name)
    except spack.Failure as failure:
        return failure
    finally:
        # Spack writes the lock anew as it installs, without what it was solved from.
        (folder / LOCK).write_bytes(solved)
    return None


def prepared(environment: Environment, folder: Path, log: Path, say: Callable[[str], None]) -> Lock:
    """Makes a folder an environment that Spack can work on, with its lock.

    :raises Fault: if there is no solution.
    """
    if environment.system == HERE:
        _detect(environment, folder, say)
    _copy(environment, folder, _detected(folder))
    return _solve(environment, folder, log, say)


def outlived(environment: Environment) -> str | None:
    """Why what is built is not complete, or no longer what it was; ``None`` if it is."""
    found = built(environment)
    if found is None:
        return f"Spack environment {environment.name} is not built"
    for why in found.mark["missing"].values():
        return f"Spack environment {environment.name} is not complete: {why}"
    for damage in found.damaged().values():
        return f"Spack environment {environment.name} is damaged: {damage}"
    for fault in externals.faults(found.lock):
        return f"Spack environment {environment.name} was built with what is gone: {fault}"
    return None


def _equip(environment: Environment, say: Callable[[str], None]) -> None:
    """Installs what this machine lacks, where it is a Debian and the user root.

    :raises Fault: naming what is still missing.
    """
    lacking = externals.lacking(environment.toolchain)
    failed = ""
    if lacking and debian.can_install():
        log = spack.root() / "apt.log"
        if not debian.install(externals.packages_of(lacking), log, say):
            failed = f" (it failed here: see {log})"
        lacking = externals.lacking(environment.toolchain)
    if lacking:
        install = " ".join(debian.command(externals.packages_of(lacking)))
        told = ", ".join(f"{name} ({why})" if why else name for name, why in lacking.items())
        raise Fault(
            f"{environment.name}: this machine cannot build with: {told}\n"
            f"on a Debian: {install}{failed}",
            code="build.no-compiler",
        )


def _detected(folder: Path) -> list[Path]:
    path = folder / "detected.yaml"
    return [path] if path.is_file() else []


def _detect(environment: Environment, folder: Path, say: Callable[[str], None]) -> None:
    """Writes down this machine's tools where they are not those of the shipped files."""
    kept = environment.lock()
    path = folder / "detected.yaml"
    other = list(externals.faults(kept, exact=True)) if kept else []
    if externals.target() != externals.COMMON_TARGET:
        other.append(f"this processor is no {externals.COMMON_TARGET}")
    if not other:
        path.unlink(missing_ok=True)
        return
    say(f"{environment.name}: {other[0]}: taking this machine's own tools")
    path.write_text(externals.detect(), encoding="utf-8")


def _copy(environment: Environment, folder: Path, detected: list[Path]) -> None:
    """The manifest as Spack works on it: its includes by their full paths."""
    content = dict(environment.content())
    included = environment.included()
    # After the site's own file, which overrides what is detected.
    first = sum(path.name == environments.SITE for path in included[:1])
    content["include"] = [*map(str, [*included[:first], *detected, *included[first:]])]
    text = yaml.safe_dump({"spack": content}, sort_keys=False, width=1000)
    if environment.system == HERE:
        text = text.replace(f"target={externals.COMMON_TARGET}", f"target={externals.target()}")
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def _solve(environment: Environment, folder: Path, log: Path, say: Callable[[str], None]) -> Lock:
    """The lock to install from: the tree's where it still says what the manifest does."""
    detected = _detected(folder)
    kept = environment.lock()
    why = environment.outdated(kept, *detected) if kept else "no lock is kept"
    if kept and why is None:
        shutil.copy(kept.path, folder / LOCK)
        return kept
    with contextlib.suppress(Fault):
        # Of a build that was cut off.
        own = environments.read_lock(folder / LOCK)
        if environment.outdated(own, *detected) is None:
            return own
    say(f"{environment.name}: {why}: concretizing, which takes a minute")
    return concretize(environment, folder, log, say)


def concretize(
    environment: Environment, folder: Path, log: Path, say: Callable[[str], None]
) -> Lock:
    """Solves the manifest in a folder, and writes into the lock what it was solved from.

    :raises Fault: if there is no solution.
    """
    (folder / LOCK).unlink(missing_ok=True)
    # Spack remembers a compiler that once did not run, for whatever reason.
    shutil.rmtree(spack.root() / "cache" / "cache" / "compilers", ignore_errors=True)
    words = ["concretize", "--force"]
    if environment.system != HERE and not _has_compilers(environment):
        words = ["python", str(paths.spack_env() / "as_given.py")]
    spack.run(words, folder, log, say, environment.name)
    content = json.loads((folder / LOCK).read_text(encoding="utf-8"))
    names = {fields["name"] for fields in content["concrete_specs"].values()}
    content[STAMP] = {
        "digest": environment.digest(names, *_detected(folder)),
        "solution": environments.solution(content),
    }
    text = json.dumps(content, separators=(",", ":"))
    (folder / LOCK).write_text(text + "\n", encoding="utf-8")
    return environments.read_lock(folder / LOCK)


def _has_compilers(environment: Environment) -> bool:
    """Whether the compilers of an environment's system are on this machine."""
    named = [
        path
        for package in environment.configuration("packages").values()
        for external in package.get("externals", [])
        for path in external.get("extra_attributes", {}).get("compilers", {}).values()
    ]
    return bool(named) and all(map(shutil.which, named))


def _hold_against_machine(environment: Environment, lock: Lock) -> None:
    """Refuses to build on a machine that has not got what the lock takes as given.

    :raises Fault: naming each, and the file to name this machine's own in.
    """
    found = list(externals.faults(lock))
    if not found:
        return
    where = environment.folder.parent / environments.SITE
    mend = f"name this machine's own in {where}, under packages and with `externals::`"
    raise Fault(
        "\n".join([*(f"{environment.name}: {fault}" for fault in found), mend]),
        code="build.changed",
    )


def of_pins() -> dict[str, str]:
    """Tag and commit of Spack and its packages."""
    return {name: f"{pin['tag']} {pin['commit']}" for name, pin in environments.pins().items()}


def _mark(environment: Environment, folder: Path, fresh: Built, missing: dict[str, str]) -> None:
    there = [program for program, node in programs_of(fresh.lock) if node.hash not in missing]
    mark = {
        "environment": environment.name,
        "built": spack.now(),
        "lock": fresh.lock.sha256,
        "programs": {
            name: spack.sha256(path) for name in there if (path := program_in(fresh.view, name))
        },
        "missing": missing,
        **of_pins(),
    }
    files.store(folder / MARK, json.dumps(mark, indent=1) + "\n")


def index(say: Callable[[str], None]) -> None:
    """Has Spack make its index of the packages, which takes minutes the first time.

    Those that start side by side would all wait for one that makes it, and Spack gives up after
    120 s.

    :raises Fault: if it fails.
    """
    logs = spack.root() / "locks"
    logs.mkdir(exist_ok=True)
    log = logs / "index.log"
    log.unlink(missing_ok=True)
    spack.run(["providers", "mpi"], None, log, say, "Spack's index of its packages")


def lock(environment: Environment, say: Callable[[str], None]) -> Solution:
    """Concretizes an environment anew and keeps its lock in the tree.

    Several may be concretized at once, under one lock of the install root.

    :raises Fault: if there is no solution.
    """
    logs = spack.root() / "locks"
    logs.mkdir(exist_ok=True)
    log = logs / f"{environment.system}-{environment.toolchain}.log"
    log.write_text(f"{spack.now()}: {environment.name}\n", encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=spack.root()) as name:
        folder = Path(name)
        _copy(environment, folder, [])
        began = time.monotonic()
        solved = concretize(environment, folder, log, say)
        seconds = time.monotonic() - began
        shutil.copy(folder / LOCK, environment.folder / LOCK)
    externals_ = sum(bool(node.prefix) for node in solved.nodes.values())
    say(f"{environment.name}: {len(solved.nodes)} packages in {seconds:.0f} s")
    return Solution(environment, len(solved.roots), len(solved.nodes), externals_, seconds)


@dataclass(frozen=True)
class Solution:
    """What one concretization came to: root specs, packages, externals among them, seconds."""

    environment: Environment
    roots: int
    packages: int
    externals: int
    seconds: float


def page(solutions: list[Solution], jobs: int) -> str:
    """The page of all concretizations, for the docs."""
    rows = [
        [s.environment.system, s.environment.toolchain, s.roots, s.packages, s.externals,
         f"{s.seconds:.0f}"]
        for s in solutions
    ]  # fmt: skip
    headers = ["system", "toolchain", "root specs", "packages", "of them external", "seconds"]
    pins = environments.pins()
    return (
        "# Spack environments, concretized\n\n"
        f"Written by `make lock`: Spack {pins['spack']['tag']}, its packages "
        f"{pins['packages']['tag']}, {jobs} at once on {os.cpu_count()} cores. Externals are taken "
        "as given, targets are the systems' own.\n\n"
        f"{tabulate(rows, headers, tablefmt='github', disable_numparse=True)}\n"
    )
