"""Mirrors: everything that a site without a network needs to build environments.

A mirror is a folder with Spack and its packages as bare git repositories (``git/``, held against
the pinned commits), the sources in Spack's own layout (held against the recipes' checksums), the
wheels that Plumbline itself is installed from (``wheels/``, held against the hashes of its locks),
and ``plumbline.json``, which says for which environments it is complete. Of a source that a recipe
names by a git commit Spack takes what a mirror has unseen; ``plumbline.json`` has its SHA-256.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.software import build, environments, providers, spack
from plumbline.software.environments import Environment
from plumbline.software.spack import CONTENTS


def create(folder: Path, wanted: list[Environment], say: Callable[[str], None]) -> None:
    """Makes a mirror of environments, or brings one that is there up to date.

    :raises Fault: if something cannot be had; the mirror then does not say that it is complete.
    """
    with spack.locked(say):
        spack.bootstrap(say)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise Fault(
                f"{folder}: cannot be made ({err.strerror})", code="files.not-writable"
            ) from None
        log = folder / "mirror.log"
        log.write_text(f"{spack.now()}\n", encoding="utf-8")
        for name, pin in environments.pins().items():
            _keep(folder / "git" / f"{name}.git", name, pin, log, say)
        _wheels(folder / "wheels", log, say)
        held = spack.contents(folder)["environments"]
        for environment in wanted:
            held[environment.name] = _sources(folder, environment, log, say)
            _write(folder, held)
    say(f"{folder}: complete for {', '.join(held)}")
    say(f"the SHA-256 of its {CONTENTS} is {spack.sha256(folder / CONTENTS)}: where it is used the "
        f"same is shown")  # fmt: skip


def _keep(
    bare: Path, name: str, pin: dict[str, str], log: Path, say: Callable[[str], None]
) -> None:
    """A bare repository of one pinned commit."""
    tag = f"refs/tags/{pin['tag']}"
    if spack.has_commit(bare, pin):
        return
    say(f"{name} {pin['tag']}")
    partial = bare.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with log.open("a", encoding="utf-8") as file:
        for words in (
            ["init", "-q", "--bare", str(partial)],
            ["-C", str(partial), "fetch", "-q", "--depth=1", f"file://{spack.checkout(name)}",
             f"{pin['commit']}:{tag}"],
        ):  # fmt: skip
            if spack.git(words, file):
                raise Fault(
                    f"{bare}: {name} could not be copied; see {log}", code="spack.not-fetched"
                )
    shutil.rmtree(bare, ignore_errors=True)
    partial.rename(bare)


def _wheels(folder: Path, log: Path, say: Callable[[str], None]) -> None:
    """The wheels of Plumbline's own environment and of the provider ``pip``."""
    say("wheels of Plumbline itself")
    locks = [paths.ROOT / "requirements.lock", *map(providers.lock_of, providers.WHEELS)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    options = ["--no-deps", "--require-hashes", "--timeout=15", "--retries=2", "-d", str(folder)]
    with log.open("a", encoding="utf-8") as file:
        for lock in locks:
            command = [*pip, *options, "-r", str(lock)]
            if subprocess.run(command, stdout=file, stderr=file, check=False).returncode:
                raise Fault(
                    f"{folder}: pip could not bring the wheels of {lock}; see {log}",
                    code="spack.not-fetched",
                )


def _sources(folder: Path, environment: Environment, log: Path, say: Callable[[str], None]) -> str:
    """Brings the sources of an environment; the digest of what it was solved from."""
    say(f"{environment.name}: sources")
    with tempfile.TemporaryDirectory(dir=spack.root()) as name:
        work = Path(name)
        lock = build.prepared(environment, work, log, say)
        spack.run(["mirror", "create", "--all", "-d", str(folder)], work, log, say,
                  environment.name)  # fmt: skip
    return lock.stamp["digest"]


def _write(folder: Path, held: dict[str, str]) -> None:
    content = {
        "pins": environments.pins(),
        "environments": held,
        "sources": {name: spack.sha256(folder / name) for name in spack.by_commit(folder)},
    }
    files.store(folder / CONTENTS, json.dumps(content, indent=1) + "\n")


def use(folder: Path | None, say: Callable[[str], None]) -> None:
    """Has builds take everything from a mirror, or with ``None`` from the network again.

    :raises Fault: if the folder is no mirror, or has another Spack.
    """
    with spack.locked(say):
        chosen = spack.root() / "mirror"
        if folder is None:
            chosen.unlink(missing_ok=True)
            say("builds use the network again")
            return
        folder = folder.absolute()
        _hold_against_pins(folder)
        files.store(chosen, f"{folder}\n")
    held = spack.contents(folder)["environments"]
    for environment in environments.every():
        if environment.name in held:
            kept = environment.lock()
            other = kept is None or kept.stamp.get("digest") != held[environment.name]
            note = ": made of another solution than the lock kept here, sources may be missing"
            say(f"{environment.name}{note if other else ''}")
    say(f"builds use {folder}, whose {CONTENTS} has the SHA-256 {spack.sha256(folder / CONTENTS)}")


def _hold_against_pins(folder: Path) -> None:
    if not (folder / CONTENTS).is_file():
        raise Fault(
            f"{folder}: has no {CONTENTS}, so it is no mirror: `plumbline mirror create`",
            code="spack.wrong-mirror",
        )
    spack.check(folder)
    for name, pin in environments.pins().items():
        if not spack.has_commit(folder / "git" / f"{name}.git", pin):
            raise Fault(
                f"{folder}: does not have {name} {pin['tag']} ({pin['commit'][:12]}), which "
                f"{paths.spack_env() / 'pins.yaml'} names: make the mirror again with this "
                f"checkout",
                code="spack.wrong-mirror",
            )
