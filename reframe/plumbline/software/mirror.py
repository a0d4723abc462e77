"""Mirrors: everything that a site without a network needs to build environments.

A mirror is a folder with Spack and its packages as bare git repositories (``git/``, verified by the
pinned commits), the sources in Spack's own layout (verified by the recipes' checksums), the wheels
that Plumbline is installed from (``wheels/``, verified by the hashes of its locks), and
``plumbline.json``, which lists the environments that it is complete for. Spack does not verify a
source that its recipe names by a git commit, so ``plumbline.json`` has its SHA-256.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.software import build, checkouts, environments, providers, sources, spack
from plumbline.software.environments import Environment
from plumbline.software.spack import CONTENTS


def create(folder: Path, wanted: list[Environment], report: Callable[[str], None]) -> None:
    """Make a mirror of environments, or update it.

    :raises Fault: if something cannot be fetched; the mirror does not count as complete then.
    """
    with spack.locked(report):
        checkouts.fetch(report)
        sources.distrust_sources()
        with files.writing(folder, "cannot be created ({})"):
            folder.mkdir(parents=True, exist_ok=True)
        log = folder / "mirror.log"
        log.write_text(f"{spack.now()}\n", encoding="utf-8")
        for name, pin in environments.pins().items():
            _copy_commit(folder / "git" / f"{name}.git", name, pin, log, report)
        _wheels(folder / "wheels", log, report)
        _remove_altered(folder, report)
        complete = sources.contents(folder)["environments"]
        for environment in wanted:
            complete[environment.name] = _sources(folder, environment, log, report)
            _write(folder, complete)
    report(f"{folder}: complete for {', '.join(complete)}")
    report(f"the SHA-256 of its {CONTENTS} is {spack.sha256(folder / CONTENTS)}: compare it where "
           f"the mirror is used")  # fmt: skip


def _copy_commit(
    bare: Path, name: str, pin: dict[str, str], log: Path, report: Callable[[str], None]
) -> None:
    """Make a bare repository of one pinned commit."""
    if checkouts.has_commit(bare, pin):
        return
    report(f"{name} {pin['tag']}")
    source = [f"file://{spack.checkout(name)}", f"{pin['commit']}:refs/tags/{pin['tag']}"]
    # A checkout that somebody cloned has the tag too, and git would fetch both.
    fetch = ["fetch", "-q", "--depth=1", "--no-tags", *source]
    if not checkouts.make_repository(bare, log, ["--bare"], fetch):
        raise Fault(f"{bare}: {name} could not be copied; see {log}", code="spack.not-fetched")


def _wheels(folder: Path, log: Path, report: Callable[[str], None]) -> None:
    """Download the wheels of Plumbline and of the provider ``pip``."""
    report("wheels of Plumbline itself")
    locks = [paths.ROOT / "requirements.lock", *map(providers.lock_of, providers.WHEELS)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    options = ["--no-deps", "--require-hashes", "--timeout=15", "--retries=2", "-d", str(folder)]
    with log.open("a", encoding="utf-8") as file:
        for lock in locks:
            command = [*pip, *options, "-r", str(lock)]
            if subprocess.run(command, stdout=file, stderr=file, check=False).returncode:
                raise Fault(
                    f"{folder}: pip could not download the wheels of {lock}; see {log}",
                    code="spack.not-fetched",
                )


def _remove_altered(folder: Path, report: Callable[[str], None]) -> None:
    """Remove the sources that are not what was fetched.

    Spack fetches only files that are not there, and a mirror that was interrupted has half a file.
    """
    for path in sources.altered_sources(folder, archives=True):
        report(f"{path}: may be cut off, or was changed: fetching it again")
        with files.writing(path, "cannot be removed ({}): remove it"):
            path.unlink()


def _sources(
    folder: Path, environment: Environment, log: Path, report: Callable[[str], None]
) -> str:
    """Fetch the sources of an environment and return the digest of what they were chosen
    by, without the tools of this machine: where the mirror is used, there may be others."""
    report(f"{environment.name}: sources")
    with tempfile.TemporaryDirectory(dir=spack.root()) as name:
        work = Path(name)
        build.prepared(environment, work, log, report)
        spack.run(["mirror", "create", "--all", "-d", str(folder)], work, log, report,
                  environment.name)  # fmt: skip
    return environment.digest(environment.root_packages())


def _write(folder: Path, complete: dict[str, str]) -> None:
    content = {
        "pins": environments.pins(),
        "environments": complete,
        "sources": {name: spack.sha256(folder / name) for name in sources.by_commit(folder)},
    }
    files.write_atomically(folder / CONTENTS, json.dumps(content, indent=1) + "\n")


def use(folder: Path | None, report: Callable[[str], None]) -> None:
    """Make builds use a mirror, or with ``None`` the network again.

    :raises Fault: if the folder is not a mirror, or has another version of Spack.
    """
    with spack.locked(report):
        chosen = spack.root() / "mirror"
        if folder is None:
            chosen.unlink(missing_ok=True)
            report("builds use the network again")
            return
        folder = folder.absolute()
        _require_mirror(folder)
        files.write_atomically(chosen, f"{folder}\n")
    complete = sources.contents(folder)["environments"]
    for environment in environments.list_environments():
        if environment.name in complete:
            other = environment.digest(environment.root_packages()) != complete[environment.name]
            state = "made from another manifest or other recipes than here; sources may be missing"
            report(f"{environment.name}: {state if other else 'all sources are in the mirror'}")
    digest = spack.sha256(folder / CONTENTS)
    report(f"builds use {folder}, whose {CONTENTS} has the SHA-256 {digest}")


def _require_mirror(folder: Path) -> None:
    if not (folder / CONTENTS).is_file():
        raise Fault(
            f"{folder}: not a mirror, as it has no {CONTENTS}; create one with `plumbline mirror "
            f"create`",
            code="spack.wrong-mirror",
        )
    sources.verify_sources(folder, archives=True)
    for name, pin in environments.pins().items():
        if not checkouts.has_commit(folder / "git" / f"{name}.git", pin):
            raise Fault(
                f"{folder}: does not have {name} {pin['tag']} ({pin['commit'][:12]}) of "
                f"{paths.spack_env().find('pins.yaml')}: create the mirror again here",
                code="spack.wrong-mirror",
            )
