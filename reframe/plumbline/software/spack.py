"""Runs Spack: its own copy, settings, caches and install tree, nothing of the user's.

Everything lies under ``spack/`` of the install root::

    spack/  packages/    Spack and its recipes, checked out at the commits of pins.yaml
    cache/               its caches, sources, stages and the install tree (``store/``)
    environments/        one folder for each environment that is built
    mirror               the folder that ``plumbline mirror use`` named
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import fasteners
import yaml

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.software import environments

#: What a mirror says of itself.
CONTENTS = "plumbline.json"

#: Seconds that a host gets to answer, and that git waits on a transfer that does not move.
PATIENCE = 10

#: Bytes without which no build is started: the stage of the largest benchmark with its objects.
ROOM = 2**30

#: What Spack says of itself as it goes on, and what of it is shown.
_PROGRESS = (
    (re.compile(r"^==> Installing (\S+?)-\w{32} \[(\d+/\d+)\]"), r"[\2] \1"),
    (re.compile(r"^==> (?:Fetching|Cloning) ((?:https?|git)://\S+)"), r"fetching \1"),
    (re.compile(r"^==> Adding package (\S+?) to mirror"), r"\1"),
)


def root() -> Path:
    """Where all of Spack's lies."""
    return paths.tools() / "spack"


def checkout(name: str) -> Path:
    """Where ``spack`` or ``packages`` is checked out."""
    return root() / name


def folder_of(environment: environments.Environment) -> Path:
    """Where an environment is built; the tree's own folder is never written to by a build."""
    return root() / "environments" / environment.system / environment.toolchain


def store() -> Path:
    """The install tree; its layout is in ``spack-env/config/config.yaml``."""
    return (root() / "cache" / "store").resolve()


def mirror() -> Path | None:
    """The mirror in use.

    :raises Fault: if it is no longer there.
    """
    file = root() / "mirror"
    if not file.is_file():
        return None
    folder = Path(file.read_text(encoding="utf-8").strip())
    if not (folder / CONTENTS).is_file():
        raise Fault(
            f"{folder}: the mirror in use is not there: mount it, name another with `plumbline "
            f"mirror use FOLDER`, or go on line with `plumbline mirror use --off`",
            code="spack.wrong-mirror",
        )
    return folder


def contents(folder: Path) -> dict:
    """What a mirror says that it has; nothing where there is none yet.

    :raises Fault: if it cannot be read.
    """
    file = folder / CONTENTS
    if not file.is_file():
        return {"environments": {}, "sources": {}}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {part: dict(content[part]) for part in ("environments", "sources")}
    except (OSError, ValueError, KeyError, TypeError):
        raise Fault(
            f"{file}: is no list of a mirror's contents: take it away and make the mirror again",
            code="spack.wrong-mirror",
        ) from None


def by_commit(folder: Path) -> list[str]:
    """The sources of a mirror that a recipe names by a commit, so that it has no checksum."""
    files = sorted((folder / "_source-cache" / "git").glob("**/*.tar.gz"))
    return [str(path.relative_to(folder)) for path in files if path.is_file()]


def check(folder: Path) -> None:
    """Holds the sources that no recipe has a checksum of against what the mirror was made with.

    :raises Fault: naming the one that is another.
    """
    told = contents(folder)["sources"]
    for name in by_commit(folder):
        if told.get(name) != sha256(folder / name):
            raise Fault(
                f"{folder / name}: is not what the mirror was made with ({CONTENTS}): nothing is "
                f"built from it; bring the mirror again",
                code="spack.wrong-mirror",
            )


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def locked(say: Callable[[str], None]) -> Iterator[None]:
    """Keeps two builds from each other; the second waits and says so.

    :raises Fault: if the install root cannot be written.
    """
    try:
        root().mkdir(parents=True, exist_ok=True)
        lock = fasteners.InterProcessLock(root() / "lock")
        if not lock.acquire(blocking=False):
            say(f"another build holds {root() / 'lock'}: waiting for it")
            lock.acquire()
    except OSError as err:
        raise Fault(
            f"{root()}: cannot be written ({err.strerror}): free the disk, or set PLUMBLINE_TOOLS "
            f"to a folder that can be",
            code="files.not-writable",
        ) from None
    try:
        yield
    finally:
        lock.release()


def bootstrap(say: Callable[[str], None]) -> None:
    """Brings Spack and its packages, from the mirror in use or from where they are published.

    :raises Fault: if they cannot be had; the text says how to go on from a mirror.
    """
    for name, pin in environments.pins().items():
        if _commit(checkout(name)) != pin["commit"]:
            _bring(name, pin, say)


def _commit(folder: Path) -> str:
    """The commit that a folder is checked out at, empty if there is none."""
    head = folder / ".git" / "HEAD"
    return head.read_text(encoding="utf-8").strip() if head.is_file() else ""


def _bring(name: str, pin: dict[str, str], say: Callable[[str], None]) -> None:
    chosen = mirror()
    address = str(chosen / "git" / f"{name}.git") if chosen else pin["git"]
    say(f"bringing {name} {pin['tag']} from {address}")
    if shutil.which("git") is None:
        raise Fault(
            "git is not on PATH: apt-get install git, or load its module", code="spack.no-git"
        )
    if not chosen:
        reach(address)
    partial = checkout(f"{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    log = root() / f"{name}.log"
    with log.open("w", encoding="utf-8") as file:
        for words in (
            ["init", "-q", str(partial)],
            ["-C", str(partial), "fetch", "-q", "--depth=1", address, pin["commit"]],
            ["-C", str(partial), "-c", "advice.detachedHead=false", "checkout", "-q", "FETCH_HEAD"],
        ):
            done = git(words, file)
            if done:
                break
    if done:
        shutil.rmtree(partial, ignore_errors=True)
        raise Fault(
            f"{name} {pin['tag']} ({pin['commit'][:12]}) could not be had from {address}"
            f"{_last(log)}; see {log}. {HOW_TO_GO_ON}",
            code="spack.not-fetched",
        )
    shutil.rmtree(checkout(name), ignore_errors=True)
    partial.rename(checkout(name))


#: For whoever has no network: what to do.
HOW_TO_GO_ON = (
    "Without a network: `plumbline mirror create FOLDER` where there is one, carry the folder "
    "here, `plumbline mirror use FOLDER`, and build again (docs/spack.md)"
)


def reach(address: str) -> None:
    """Asks at once whether a host answers, rather than after minutes of git's own patience.

    :raises Fault: if it does not.
    """
    # A site's git may have an address of its own in its place (url.<base>.insteadOf).
    rewritten = subprocess.run(
        ["git", "ls-remote", "--get-url", address], capture_output=True, text=True, check=False
    ).stdout.strip()
    parts = urlsplit(rewritten or address)
    proxies = ("https_proxy", "HTTPS_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    if parts.scheme not in ("http", "https") or any(os.environ.get(name) for name in proxies):
        return
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    try:
        socket.create_connection((parts.hostname, port), timeout=PATIENCE).close()
    except OSError as err:
        raise Fault(
            f"{parts.hostname} cannot be reached ({err}). {HOW_TO_GO_ON}", code="spack.not-fetched"
        ) from None


def git(words: list[str], log) -> int:
    """Runs git, and gives up on a transfer that does not move. Its exit status."""
    return subprocess.run(
        ["git", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_of_git(),
        check=False,
    ).returncode  # fmt: skip


def _of_git() -> dict[str, str]:
    """The environment variables that git runs with. A mirror is of whoever carried it here: git
    would not touch another user's, and what it has is held against its commit anyway."""
    config = root() / "gitconfig"
    users = os.environ.get("GIT_CONFIG_GLOBAL") or "~/.gitconfig"
    config.write_text(f"[include]\n\tpath = {users}\n[safe]\n\tdirectory = *\n", encoding="utf-8")
    return {
        **os.environ,
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
        "GIT_HTTP_LOW_SPEED_TIME": str(PATIENCE),
    }


def has_commit(bare: Path, pin: dict[str, str]) -> bool:
    """Whether a repository has a pinned commit, whole, under its tag."""
    words = ["git", "-C", str(bare), "rev-parse", "-q", "--verify", f"refs/tags/{pin['tag']}"]
    done = subprocess.run(words, capture_output=True, text=True, env=_of_git(), check=False)
    return done.stdout.strip() == pin["commit"]


def _last(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def settings() -> dict[str, str]:
    """The environment variables that Spack runs with."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("SPACK_")}
    return {
        **own,
        "SPACK_PYTHON": sys.executable,
        # Ours in the user's place: whatever an environment includes may still override it.
        "SPACK_USER_CONFIG_PATH": str(paths.spack_env() / "config"),
        "SPACK_SYSTEM_CONFIG_PATH": os.devnull,
        "SPACK_USER_CACHE_PATH": str(root() / "cache"),
        # Spack runs on the Python that Plumbline is installed for; its packages stay out of it.
        "PYTHONNOUSERSITE": "1",
    }


def _of_mirror() -> list[str]:
    """Spack's option for the settings of the mirror in use."""
    chosen = mirror()
    if chosen is None:
        return []
    folder = root() / "config"
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"url": chosen.as_uri(), "source": True, "binary": False}
    text = yaml.safe_dump({"mirrors:": {"plumbline": entry}})
    (folder / "mirrors.yaml").write_text(text, encoding="utf-8")
    return ["-C", str(folder)]


def run(
    words: list[str],
    folder: Path | None,
    log: Path,
    say: Callable[[str], None],
    what: str,
) -> None:
    """Runs one command of Spack's, shows how it goes on, and keeps all that it says.

    :arg folder: of the environment that it works on.
    :arg log: where its output goes, after what is there.
    :arg what: the failed work, for the message.
    :raises Failure: if it fails, with Spack's own words, the log's path and the fix.
    """
    on = ["-e", str(folder)] if folder else []
    command = [str(checkout("spack") / "bin" / "spack"), *_of_mirror(), *on, *words]
    began = log.stat().st_size if log.exists() else 0
    with log.open("a", encoding="utf-8") as file:
        print("$", *command, file=file, flush=True)
        with subprocess.Popen(
            command, env=settings(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", cwd=root(),
        ) as process:  # fmt: skip
            for line in process.stdout or ():
                file.write(line)
                file.flush()
                for pattern, shown in _PROGRESS:
                    if match := pattern.search(line):
                        say(f"{what}: {match.expand(shown)}")
    if process.returncode:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(began)
            said = file.read()
        raise Failure(said, what, log)


#: What Spack says -> the fix. The first that matches is reported.
MENDS = (
    (r"No space left on device|Disk quota exceeded",
     "the disk is full: free some, or set PLUMBLINE_TOOLS to a folder on another"),
    (r"ChecksumError|checksum failed",
     "a source is not the one that its recipe names; nothing was built from it: bring it again"),
    (r"All fetchers failed|FetchError|Could not resolve host|Failed downloads",
     "a source could not be had. " + HOW_TO_GO_ON),
    (r"cannot concretize .* does not exist",
     "a root spec names a package that neither our recipes nor Spack's have: see the manifest"),
    (r"No such variant",
     "a root spec asks for a variant that its recipe does not have: see the manifest"),
    (r"[Ff]ailed to concretize|cannot satisfy a requirement|[Uu]nsatisfiable",
     "the manifest, its externals and the pinned versions contradict each other"),
)  # fmt: skip


class Failure(Fault):
    """Spack failed: what it says of it in a few lines.

    :ivar reasons: hash of each package that could not be installed -> why, in one line.
    """

    def __init__(self, said: str, what: str, log: Path):
        super().__init__(explain(said, what, log), "spack.failed")
        self.reasons = {digest: f"{name}: {_words(text)}" for name, digest, text in _failed(said)}
        for name, digest, cause in _SKIPPED.findall(said):
            self.reasons.setdefault(digest, f"{name}: needs {cause}, which could not be built")


#: Lines of a build's own output that Spack points at; it folds long ones.
_POINTED_AT = re.compile(r"^ +>> +\d+ +(.*(?:\n {11}(?! ).*)*)", re.M)

#: What such a line has where it is the fault and not a warning that reads like one.
_FATAL = re.compile(r"\berror: (?!in [`'])|undefined reference|cannot find|CMake Error|Error \d+$")

_STOPPED = "Terminating after first install failure: "

#: Where Spack begins with a package, and where it lists all failures again.
_BEGINS = re.compile(r"^==> Installing (\S+?)-(\w{32}) .*$", re.M)
_AGAIN = re.compile(r"^==> Error: (?:\S+-\w{32}: |Installation request failed)", re.M)
_SKIPPED = re.compile(
    r"^==> Warning: Skipping build of (\S+)-(\w{32}) since (\S+)-\w{32} failed$", re.M
)

#: What git says of a submodule that it cannot have (builtin/submodule--helper.c).
_SUBMODULE = re.compile(r"^fatal: (?!Failed to recurse)(.*submodule path '.*)$", re.M)

#: In autoconf's config.log: what configure stopped with, and what a compiler said that failed.
_CONFIGURE_STOPPED = re.compile(r"^configure:\d+: error: (?!in [`'])(.*)$", re.M)
_TRIED = re.compile(
    r"^configure:\d+: .* >&5\n((?:(?!configure:\d).*\n)+)configure:\d+: \$\? = [1-9]", re.M
)


def explain(said: str, what: str, log: Path) -> str:
    """What Spack's output says went wrong, in a few lines for each package: the failed build's own
    error or else Spack's words, the fix and the log."""
    lines = []
    for name, _, text in _failed(said) or [("", "", said)]:
        lines.append(f"{what}: {f'{name}: ' if name else ''}{_words(text)}")
        if fix := _fix(text):
            lines.append(fix)
        lines += [f"see {path}" for path in _build_log(text)]
    return "\n".join([*dict.fromkeys(lines), f"see {log}"])


def _failed(said: str) -> list[tuple[str, str, str]]:
    """The packages whose installation failed: name, hash and what Spack said of each."""
    parts = _BEGINS.split(said)
    each = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    own = [(name, digest, _AGAIN.split(text)[0]) for name, digest, text in each]
    return [part for part in own if "==> Error: " in part[2]]


def _words(said: str) -> str:
    """What went wrong with one package, in a line."""
    errors = re.findall(r"^==> Error: (.*(?:\n {4}.*|(?:\n\s*\S+@\S+)+)?)", said, re.M)
    told = [" ".join(error.removeprefix(_STOPPED).split()) for error in errors]
    told = [error.partition(" File size")[0] for error in told]
    own = _own_error(said)
    if own:
        # That a command failed says nothing beside why.
        told = [own, *(error for error in told if not error.startswith("ProcessError"))]
    told += [re.sub(r"'[^']*/spack-src/", "'", line) for line in _SUBMODULE.findall(said)]
    return "; ".join(dict.fromkeys(told))[:600] or "Spack failed without a word"


def _build_log(said: str) -> list[str]:
    return re.findall(r"^See build log for details:\n +(\S+)", said, re.M)[-1:]


def _own_error(said: str) -> str | None:
    """The error that a build itself ended with: configure's, or the compiler's."""
    for log in _build_log(said):
        for path in sorted(Path(log).parent.glob("spack-*/config.log")):
            text = path.read_text(encoding="utf-8", errors="replace")
            if stopped := _CONFIGURE_STOPPED.findall(text):
                tried = [found.splitlines()[0] for found in _TRIED.findall(text)[-1:]]
                return ": ".join(["configure", stopped[-1].rstrip("."), *tried])
    pointed = [line.replace("\n" + " " * 11, "") for line in _POINTED_AT.findall(said)]
    return next(filter(_FATAL.search, pointed), None)


def _fix(said: str) -> str:
    """What to do about it, empty where that is not known."""
    fix = next((text for pattern, text in MENDS if re.search(pattern, said)), "")
    if HOW_TO_GO_ON in fix:
        try:
            chosen = mirror()
        except Fault as err:
            return str(err)
        if chosen:
            return f"the mirror in use, {chosen}, has not got it: make it again with this checkout"
    return fix


def hold_against_room() -> None:
    """Refuses to start what would fill the disk.

    :raises Fault: if there is too little room.
    """
    free = shutil.disk_usage(root()).free
    if free < ROOM:
        raise Fault(
            f"{root()}: {free / 2**20:.0f} MiB are free, a build needs {ROOM / 2**30:.0f} GiB: "
            f"free some, or set PLUMBLINE_TOOLS to a folder on another disk",
            code="build.too-little-space",
        )


def now() -> str:
    """The time in UTC, as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
