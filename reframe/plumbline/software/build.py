"""Builds Spack environments, and makes their locks.

A build uses a copy of the manifest in the install root, and does not change the tree. What is
usable has a mark, ``built.json``, with the SHA-256 of each program and what could not be built.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import yaml

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.yamlfile import read_yaml
from plumbline.software import checkouts, debian, environments, externals, sources, spack
from plumbline.software.built import MARK, Built
from plumbline.software.environments import (
    LOCK,
    MANIFEST,
    STAMP,
    Environment,
    Lock,
)
from plumbline.software.programs import program_in, programs_of

#: The system whose externals are detected.
HERE = "local"


def find_built(environment: Environment) -> Built | None:
    """Return an environment that is built, or ``None`` if it is not."""
    folder = spack.folder_of(environment)
    try:
        mark = dict(json.loads((folder / MARK).read_text(encoding="utf-8")))
        mark |= {part: dict(mark[part]) for part in ("programs", "missing")}
        solved = environments.read_lock(folder / LOCK)
    except (OSError, ValueError, TypeError, KeyError, Fault):
        return None
    return Built(folder / "view", solved, mark)


def why_unusable(environment: Environment) -> str | None:
    """Return why an environment's programs cannot be used, or ``None`` if they can.

    :raises Fault: if its manifest cannot be read.
    """
    found = find_built(environment)
    if found is None:
        return f"Spack environment {environment.name} is not built"
    folder = spack.folder_of(environment)
    if found.mark.get("lock") != found.lock.sha256:
        return f"Spack environment {environment.name}: {found.lock.path} changed after it was built"
    if environment.outdated(found.lock, *_detected(folder)):
        return (
            f"Spack environment {environment.name} is outdated: {environment.manifest}, or what "
            f"it includes, changed after it was built"
        )
    return None


def build(environment: Environment, jobs: int | None, report: Callable[[str], None]) -> bool:
    """Build an environment, unless it is built.

    :arg jobs: number of parallel compilations; Spack's default if ``None``.
    :returns: whether anything was built.
    :raises Fault: if it fails, or if a package could not be built; the others can be used then.
    """
    with spack.locked(report):
        spack.mirror()  # one in use that is lost is a fault, even if all is built
        previous = find_built(environment)
        reason = why_unusable(environment) or why_incomplete(environment)
        if reason is None:
            report(f"{environment.name}: is built ({spack.folder_of(environment)})")
            return False
        report(f"{environment.name}: {reason if previous else 'building'}")
        _require_own_store(environment)
        sources.distrust_sources()
        spack.require_free_space()
        checkouts.fetch(report)
        began = time.monotonic()
        folder = spack.folder_of(environment)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "build.log"
        log.write_text(f"{spack.now()}: {environment.name}\n", encoding="utf-8")
        if environment.system == HERE:
            _install_tools(environment, report)
        lock = prepared(environment, folder, log, report)
        _require_externals(environment, lock)
        fresh = Built(folder / "view", lock, {"programs": {}})
        fresh.require_in_place()
        # From here on the view may change; a build that was refused leaves it as it was.
        (folder / MARK).unlink(missing_ok=True)
        report(f"{environment.name}: installing {len(lock.roots)} root specs; output in {log}")
        emptied = fresh.emptied()
        if emptied:
            # What is built with them would be built without.
            _uninstall(environment, emptied, log, report)
        failure = _install(environment, folder, jobs, log, report)
        same = previous and previous.lock.sha256 == lock.sha256
        checked = fresh
        if previous and same:
            new = {program for program, node in programs_of(lock) if node.hash in emptied}
            known = {p: sha for p, sha in previous.mark["programs"].items() if p not in new}
            checked = replace(fresh, mark=previous.mark | {"programs": known})
        damaged = checked.damaged()
        if damaged and not failure:
            # Spack's database has it, so Spack would not install it again.
            report(f"{environment.name}: {'; '.join(damaged.values())}: reinstalling")
            _uninstall(environment, damaged, log, report)
            failure = _install(environment, folder, jobs, log, report)
            damaged = fresh.damaged()
        if damaged and not failure:
            raise Fault(
                f"{environment.name}: incomplete: {'; '.join(damaged.values())}\nsee {log}",
                code="build.failed",
            )
        if failure and (not damaged or damaged.keys() >= set(lock.roots)):
            raise failure
        reasons = failure.reasons if failure else {}
        missing = {digest: reasons.get(digest, why) for digest, why in damaged.items()}
        _mark(environment, folder, replace(fresh, mark=checked.mark), missing)
        if failure:
            specs = ", ".join(lock.nodes[digest].spec for digest in missing)
            raise Fault(
                f"{failure}\n{environment.name}: built without {specs}; the rest can be used",
                code="build.failed",
            )
        report(f"{environment.name}: built in {time.monotonic() - began:.0f} s: {fresh.view}")
        return True


def _install(
    environment: Environment,
    folder: Path,
    jobs: int | None,
    log: Path,
    report: Callable[[str], None],
) -> spack.Failure | None:
    """Install all that can be installed, and return Spack's failure if a package could not be."""
    words = ["install", "--only-concrete", *([f"-j{jobs}"] if jobs else [])]
    lock = (folder / LOCK).read_bytes()
    # Spack leaves a view as it is that it made, and stops at one that it was interrupted in.
    shutil.rmtree(folder / "._view", ignore_errors=True)
    if (folder / "view").is_symlink():
        (folder / "view").unlink()
    try:
        spack.run(words, folder, log, report, environment.name)
    except spack.Failure as failure:
        return failure
    finally:
        # Spack rewrites the lock as it installs, without our stamp.
        (folder / LOCK).write_bytes(lock)
    return None


def _uninstall(
    environment: Environment, digests: Iterable[str], log: Path, report: Callable[[str], None]
) -> None:
    words = ["uninstall", "--force", "--yes-to-all", *(f"/{digest}" for digest in digests)]
    spack.run(words, None, log, report, environment.name)


def prepared(
    environment: Environment, folder: Path, log: Path, report: Callable[[str], None]
) -> Lock:
    """Write an environment that Spack can install into a folder, and return its lock.

    :raises Fault: if there is no solution.
    """
    if environment.system == HERE:
        _detect(environment, folder, report)
    _copy(environment, folder, _detected(folder))
    solved = _solve(environment, folder, log, report)
    _require_toolchain(environment, solved, log)
    return solved


def _require_toolchain(environment: Environment, lock: Lock, log: Path) -> None:
    """Check that Spack uses the compilers and the MPI that an environment has as externals.

    It only warns of an external that does not fit, or not even that, and takes another.

    :raises Fault: if it uses another.
    """
    # Those of this machine are detected.
    replaced = None if environment.system == HERE else environment.replaced(lock)
    if replaced:
        raise Fault(f"{environment.name}: {replaced}; see {log}", code="spack.wrong-manifest")


def why_incomplete(environment: Environment) -> str | None:
    """Return why a built environment is not complete or was damaged, or ``None`` if neither."""
    name = f"Spack environment {environment.name}"
    found = find_built(environment)
    if found is None:
        return f"{name} is not built"
    for reason in found.mark["missing"].values():
        return f"{name} is not complete: {reason}"
    for damage in found.damaged().values():
        return f"{name} is damaged: {damage}"
    for fault in externals.faults(found.lock):
        return f"{name} was built with an external that changed: {fault}"
    return None


def _install_tools(environment: Environment, report: Callable[[str], None]) -> None:
    """Install the tools that this machine lacks, if it is a Debian and the user is root.

    :raises Fault: if some are still missing.
    """
    missing = externals.missing_tools(environment.toolchain)
    failed = ""
    if missing and debian.can_install():
        log = spack.root() / "apt.log"
        if not debian.install(externals.debian_packages(missing), log, report):
            failed = f" (it failed here: see {log})"
        missing = externals.missing_tools(environment.toolchain)
    if missing:
        install = " ".join(debian.command(externals.debian_packages(missing)))
        tools = ", ".join(f"{name} ({why})" if why else name for name, why in missing.items())
        raise Fault(
            f"{environment.name}: this machine cannot build with: {tools}\n"
            f"on Debian: {install}{failed}",
            code="build.no-compiler",
        )


def _detected(folder: Path) -> list[Path]:
    path = folder / "detected.yaml"
    return [path] if path.is_file() else []


def _detect(environment: Environment, folder: Path, report: Callable[[str], None]) -> None:
    """Write the externals of this machine if they differ from the shipped ones."""
    kept = environment.lock()
    path = folder / "detected.yaml"
    differences = list(externals.faults(kept, exact=True)) if kept else []
    if externals.target() != externals.COMMON_TARGET:
        differences.append(f"this processor does not support {externals.COMMON_TARGET}")
    if not differences:
        path.unlink(missing_ok=True)
        return
    report(f"{environment.name}: {differences[0]}: using the tools of this machine")
    path.write_text(externals.detect(), encoding="utf-8")


def _copy(environment: Environment, folder: Path, detected: list[Path]) -> None:
    """Write the manifest with absolute paths of the included files."""
    content = dict(environment.content)
    included = environment.included()
    # The site's file comes first, and overrides what is detected.
    first = sum(path.name == environments.SITE for path in included[:1])
    content["include"] = [*map(str, [*included[:first], *detected, *included[first:]])]
    text = yaml.safe_dump({"spack": content}, sort_keys=False, width=1000)
    if environment.system == HERE:
        text = text.replace(f"target={externals.COMMON_TARGET}", f"target={externals.target()}")
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def _solve(
    environment: Environment, folder: Path, log: Path, report: Callable[[str], None]
) -> Lock:
    """Return the lock to install from: that of the tree if it matches the manifest."""
    detected = _detected(folder)
    kept = environment.lock()
    reason = environment.outdated(kept, *detected) if kept else "it has no lock"
    if kept and reason is None:
        shutil.copy(kept.path, folder / LOCK)
        return kept
    with contextlib.suppress(Fault):
        # That of an interrupted build.
        own = environments.read_lock(folder / LOCK)
        if environment.outdated(own, *detected) is None:
            return own
    report(f"{environment.name}: {reason}: concretizing, which takes one to three minutes")
    return concretize(environment, folder, log, report)


def concretize(
    environment: Environment, folder: Path, log: Path, report: Callable[[str], None]
) -> Lock:
    """Concretize the manifest in a folder, and stamp the lock with the digest of its inputs.

    :raises Fault: if there is no solution.
    """
    (folder / LOCK).unlink(missing_ok=True)
    # Spack caches that a compiler did not run once, for any reason.
    shutil.rmtree(spack.root() / "cache" / "cache" / "compilers", ignore_errors=True)
    words = ["concretize", "--force"]
    if environment.system != HERE and _takes_compilers_as_given(environment):
        words = ["python", str(paths.spack_env().find("as_given.py"))]
    spack.run(words, folder, log, report, environment.name)
    content = json.loads((folder / LOCK).read_text(encoding="utf-8"))
    names = {fields["name"] for fields in content["concrete_specs"].values()}
    content[STAMP] = {
        "digest": environment.digest(names, *_detected(folder)),
        "solution": environments.solution(content),
    }
    text = json.dumps(content, separators=(",", ":"))
    (folder / LOCK).write_text(text + "\n", encoding="utf-8")
    return environments.read_lock(folder / LOCK)


def _takes_compilers_as_given(environment: Environment) -> bool:
    """Return whether this machine lacks compilers of an environment, for nodes of another one.

    :raises Fault: if it does, and the environment is not for another machine.
    """
    packages = environment.configuration("packages")
    compilers = [
        path
        for package in packages.values()
        for external in package.get("externals", [])
        for path in external.get("extra_attributes", {}).get("compilers", {}).values()
    ]
    missing = [path for path in compilers if not shutil.which(path)]
    if compilers and not missing:
        return False
    if not packages.get("glibc", {}).get("externals"):
        what = f"{', '.join(missing)} not found" if missing else "no external compiler"
        raise Fault(
            f"{environment.name}: {what}: correct the externals; to concretize for another "
            f"machine, include ../../common/<os>-<family>.yaml, which has its glibc",
            code="build.no-external",
        )
    return True


def _require_own_store(environment: Environment) -> None:
    """Check that packages are installed where they are looked for.

    :raises Fault: if a site's settings have another install tree.
    """
    shipped, *_ = environments.config_folders()
    tree = read_yaml(shipped / "config.yaml")["config"]["install_tree"]
    if environment.configuration("config").get("install_tree") != tree:
        raise Fault(
            f"{environment.name}: an included file or the site's settings have an `install_tree` "
            f"under `config`: remove it; PLUMBLINE_TOOLS is the folder of all that is built",
            code="spack.wrong-manifest",
        )
    if environment.configuration("upstreams"):
        raise Fault(
            f"{environment.name}: an included file or the site's settings have `upstreams`: remove "
            f"it; list what is installed there as externals",
            code="spack.wrong-manifest",
        )


def _require_externals(environment: Environment, lock: Lock) -> None:
    """Check that this machine has the lock's externals.

    :raises Fault: if it does not.
    """
    found = list(externals.faults(lock))
    if found:
        site = paths.spack_env().own / environment.system / environments.SITE
        remedy = f"list this machine's own in {site}, under packages and with `externals::`"
        raise Fault(
            "\n".join([*(f"{environment.name}: {fault}" for fault in found), remedy]),
            code="build.no-external",
        )


def pin_labels() -> dict[str, str]:
    """Return tag and commit of Spack and its packages."""
    return {name: f"{pin['tag']} {pin['commit']}" for name, pin in environments.pins().items()}


def _mark(environment: Environment, folder: Path, built: Built, missing: dict[str, str]) -> None:
    wanted = [program for program, node in programs_of(built.lock) if node.hash not in missing]
    programs = {name: path for name in wanted if (path := program_in(built.view, name))}
    # One that is still lost remains so.
    libraries = {*built.lost()}.union(*map(built.libraries_of, programs.values()))
    mark = {
        "environment": environment.name,
        "built": spack.now(),
        "lock": built.lock.sha256,
        "programs": {name: spack.sha256(path) for name, path in programs.items()},
        "libraries": sorted(map(str, libraries)),
        "missing": missing,
        **pin_labels(),
    }
    files.write_atomically(folder / MARK, json.dumps(mark, indent=1) + "\n")


def index(report: Callable[[str], None]) -> None:
    """Make Spack's index of the packages, which takes minutes the first time.

    Concretizations in parallel would wait for it, and Spack gives up after 120 s.

    :raises Fault: if it fails.
    """
    logs = spack.root() / "locks"
    logs.mkdir(exist_ok=True)
    log = logs / "index.log"
    log.unlink(missing_ok=True)
    report("Spack's index of its packages, which takes minutes the first time")
    spack.run(["providers", "mpi"], None, log, report, "Spack's index of its packages")


def lock(environment: Environment, report: Callable[[str], None]) -> None:
    """Concretize an environment, and write its lock into the site's folder. Several may run in
    parallel.

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
        solved = concretize(environment, folder, log, report)
        seconds = time.monotonic() - began
        _require_toolchain(environment, solved, log)
        kept = paths.spack_env().own / environment.system / environment.toolchain / LOCK
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / LOCK, kept)
    report(f"{environment.name}: {len(solved.nodes)} packages in {seconds:.0f} s: {kept}")
