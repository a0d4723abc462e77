"""Runs Spack with its own copy, settings, caches and install tree, and nothing of the user's.

Everything is under ``spack/`` of the install root::

    spack/  packages/    Spack and its recipes, checked out at the commits of pins.yaml
    cache/               its caches, sources, stages and the install tree (``store/``)
    environments/        one folder for each environment that is built
    mirror               the path of the mirror in use
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.software import environments

#: The file in a mirror that lists its contents.
CONTENTS = "plumbline.json"

#: Processes of Spack that run now.
_started: list[subprocess.Popen] = []

#: Signals that stop Spack, and whether one has come.
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_stopped = threading.Event()

#: Bytes that a build needs: the stage of the largest benchmark with its objects.
FREE_SPACE = 2**30

#: Pattern of Spack's progress -> what is reported of it.
_PROGRESS = (
    (re.compile(r"^==> Installing (\S+?)-\w{32} \[(\d+/\d+)\]"), r"[\2] \1"),
    (re.compile(r"^==> (?:Fetching|Cloning) ((?:https?|git)://\S+)"), r"fetching \1"),
    (re.compile(r"^==> Adding package (\S+?) to mirror"), r"\1"),
)

#: What is reported after Ctrl-C.
WAITING = "waiting for Spack to end, which may take a minute"

#: The remedy where nothing can be fetched.
WITHOUT_NETWORK = (
    "Without a network: run `plumbline mirror create FOLDER` on a machine that has one, copy the "
    "folder here, run `plumbline mirror use FOLDER`, and build again (docs/spack.md)"
)


def root() -> Path:
    """Return the folder with Spack and all of its files."""
    return paths.tools() / "spack"


def checkout(name: str) -> Path:
    """Return the checkout of ``spack`` or ``packages``."""
    return root() / name


def folder_of(environment: environments.Environment) -> Path:
    """Return the folder in which an environment is built."""
    return root() / "environments" / environment.system / environment.toolchain


def store() -> Path:
    """Return the install tree; its layout is in ``spack-env/config/config.yaml``."""
    return (root() / "cache" / "store").resolve()


def mirror() -> Path | None:
    """Return the mirror in use, or ``None``.

    :raises Fault: if it does not exist any more.
    """
    file = root() / "mirror"
    if not file.is_file():
        return None
    folder = Path(file.read_text(encoding="utf-8").strip())
    if not (folder / CONTENTS).is_file():
        raise Fault(
            f"{folder}: the mirror in use does not exist: mount it, choose another with "
            f"`plumbline mirror use FOLDER`, or use the network with `plumbline mirror use --off`",
            code="spack.wrong-mirror",
        )
    return folder


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def locked(report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the install root; a second build reports that it waits.

    :raises Fault: if the install root cannot be written, or a disk becomes full.
    """
    remedy = "free disk space, or set PLUMBLINE_TOOLS to a writable folder"
    with files.writing(root(), "cannot be written ({}): " + remedy):
        root().mkdir(parents=True, exist_ok=True)
        lock = files.lock(root() / "lock")
        if not files.acquire(lock, blocking=False):
            report(f"another build holds {root() / 'lock'}: waiting for it")
            files.acquire(lock)
    _stopped.clear()
    before = {number: signal.getsignal(number) for number in _STOPS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as of nohup, or in the background of a script
            signal.signal(number, _stop)
    try:
        yield
    except OSError as err:
        if err.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        what = err.filename or f"a file in {root()}, or of the mirror,"
        raise Fault(
            f"{what} could not be written, as the disk is full ({err.strerror}): delete files, or "
            f"set PLUMBLINE_TOOLS to a folder on another disk",
            code="build.too-little-space",
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        lock.release()


def settings() -> dict[str, str]:
    """Return Spack's environment variables."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("SPACK_")}
    shipped, *_ = environments.config_folders()
    return {
        **own,
        "SPACK_PYTHON": sys.executable,
        # Ours replace the user's; what an environment includes may override them.
        "SPACK_USER_CONFIG_PATH": str(shipped),
        "SPACK_SYSTEM_CONFIG_PATH": os.devnull,
        "SPACK_USER_CACHE_PATH": str(root() / "cache"),
        "PYTHONNOUSERSITE": "1",
    }


def _scopes() -> list[str]:
    """Return Spack's options for the settings of the site, and of the mirror in use."""
    _, *sites = environments.config_folders()
    own = [word for folder in sites for word in ("-C", str(folder))]
    chosen = mirror()
    if chosen is None:
        return own
    folder = root() / "config"
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"url": chosen.as_uri(), "source": True, "binary": False}
    text = yaml.safe_dump({"mirrors:": {"plumbline": entry}})
    (folder / "mirrors.yaml").write_text(text, encoding="utf-8")
    return [*own, "-C", str(folder)]


@contextmanager
def _awaited(process: subprocess.Popen, report: Callable[[str], None]) -> Iterator[None]:
    """Wait for Spack if it is interrupted: the install root is locked until it has ended."""
    _started.append(process)
    try:
        yield
    except KeyboardInterrupt:
        report(WAITING)
        # Also if it is interrupted again.
        while process.poll() is None:
            with suppress(KeyboardInterrupt):
                for _ in process.stdout or ():
                    pass
                process.wait()
        raise
    finally:
        _started.remove(process)


def _stop(number: int, frame: object) -> None:
    """Stop Spack, and then this process, on Ctrl-C and the like.

    Spack builds in processes of its own and waits for them, however long a build takes. So all get
    the signal, in a process group that begins with Spack.
    """
    _stopped.set()
    # Where SIGINT is ignored, Spack ignores it too.
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    for process in _started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM if ignored else signal.SIGINT)
    raise KeyboardInterrupt


def run(
    words: list[str],
    folder: Path | None,
    log: Path,
    report: Callable[[str], None],
    what: str,
) -> None:
    """Run a command of Spack, report its progress, and append its output to a log.

    :arg folder: folder of the environment.
    :arg what: what is being done, for messages.
    :raises Failure: if it fails, with Spack's error, the fix and the log's path.
    """
    environment = ["-e", str(folder)] if folder else []
    command = [str(checkout("spack") / "bin" / "spack"), *_scopes(), *environment, *words]
    began = log.stat().st_size if log.exists() else 0
    with log.open("a", encoding="utf-8") as file:
        print("$", *command, file=file, flush=True)
        with subprocess.Popen(
            command, env=settings(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", cwd=root(),
            start_new_session=True,
        ) as process, _awaited(process, report):  # fmt: skip
            for line in process.stdout or ():
                file.write(line)
                file.flush()
                for pattern, shown in _PROGRESS:
                    if match := pattern.search(line):
                        report(f"{what}: {match.expand(shown)}")
    if _stopped.is_set():
        # Of a thread, which the signal does not reach.
        raise KeyboardInterrupt
    if process.returncode:
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(began)
            output = file.read()
        raise Failure(output, what, log)


#: Pattern of Spack's output -> reason code and remedy. The first that matches is reported.
REMEDIES = (
    (r"No space left on device|Disk quota exceeded", "build.too-little-space",
     "the disk is full: delete files, or set PLUMBLINE_TOOLS to a folder on another disk"),
    (r"ChecksumError|checksum failed", "spack.wrong-checksum",
     "a source differs from the checksum in its recipe; nothing was built from it: fetch it again, "
     "or copy the mirror in use again"),
    (r"All fetchers failed|FetchError|Could not resolve host|Failed downloads", "spack.not-fetched",
     "a source could not be fetched. " + WITHOUT_NETWORK),
    (r"cannot concretize .* does not exist", "spack.wrong-manifest",
     "a root spec names an unknown package: correct the manifest"),
    (r"No such variant", "spack.wrong-manifest",
     "a root spec names a variant that its recipe does not have: correct the manifest"),
    (r"[Ff]ailed to concretize|cannot satisfy a requirement|[Uu]nsatisfiable",
     "spack.not-concretized",
     "the manifest, its externals and the pinned versions contradict each other"),
)  # fmt: skip


class Failure(Fault):
    """Spack failed; the message has, in a few lines for each failed package, the build's own error
    or else Spack's, the remedy and the log.

    :ivar reasons: hash of each package that could not be installed -> why, in one line.
    """

    def __init__(self, output: str, what: str, log: Path):
        failed = _failed(output)
        lines: list[str] = _DROPPED.findall(output)
        codes: list[str] = []
        for name, _, text in failed or [("", "", output)]:
            code, remedy = _known(text)
            lines += [f"{what}: {f'{name}: ' if name else ''}{_error(text)}", remedy]
            lines += [f"see {path}" for path in _build_log(text)]
            codes.append(code)
        message = "\n".join([*filter(None, dict.fromkeys(lines)), f"see {log}"])
        super().__init__(message, next(filter(None, codes), "spack.failed"))
        self.reasons = {digest: f"{name}: {_error(text)}" for name, digest, text in failed}
        for name, digest, cause in _SKIPPED.findall(output):
            self.reasons.setdefault(digest, f"{name}: needs {cause}, which could not be built")


#: Lines of a build's output that Spack marks as errors; it folds long ones.
_MARKED = re.compile(r"^ +>> +\d+ +(.*(?:\n {11}(?! ).*)*)", re.M)

#: Pattern of those lines that are errors, not warnings.
_FATAL = re.compile(r"\berror: (?!in [`'])|undefined reference|cannot find|CMake Error|Error \d+$")

#: Spack's warning that it does not use an external.
_DROPPED = re.compile(r"^==> Warning: (The external spec .*)$", re.M)

_STOPPED = "Terminating after first install failure: "

#: Where Spack starts with a package, and where it lists all failures again.
_BEGINS = re.compile(r"^==> Installing (\S+?)-(\w{32}) .*$", re.M)
_AGAIN = re.compile(r"^==> Error: (?:\S+-\w{32}: |Installation request failed)", re.M)
_SKIPPED = re.compile(
    r"^==> Warning: Skipping build of (\S+)-(\w{32}) since (\S+)-\w{32} failed$", re.M
)

#: Git's message about a submodule that it cannot fetch (builtin/submodule--helper.c).
_SUBMODULE = re.compile(r"^fatal: (?!Failed to recurse)(.*submodule path '.*)$", re.M)

#: In autoconf's config.log: configure's last error, and the messages of compilers that failed.
_CONFIGURE_STOPPED = re.compile(r"^configure:\d+: error: (?!in [`'])(.*)$", re.M)
_TRIED = re.compile(
    r"^configure:\d+: .* >&5\n((?:(?!configure:\d).*\n)+)configure:\d+: \$\? = [1-9]", re.M
)


def _failed(output: str) -> list[tuple[str, str, str]]:
    """Return name, hash and Spack's output of each package whose installation failed."""
    parts = _BEGINS.split(output)
    each = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    own = [(name, digest, _AGAIN.split(text)[0]) for name, digest, text in each]
    return [part for part in own if "==> Error: " in part[2]]


def _error(output: str) -> str:
    """Return what went wrong with one package, in a line."""
    found = re.findall(r"^==> Error: (.*(?:\n {4}.*|(?:\n\s*\S+@\S+)+)?)", output, re.M)
    errors = [" ".join(error.removeprefix(_STOPPED).split()) for error in found]
    errors = [error.partition(" File size")[0] for error in errors]
    own = _build_error(output)
    if own:
        # Spack's message that a command failed adds nothing to the reason.
        errors = [own, *(error for error in errors if not error.startswith("ProcessError"))]
    errors += [re.sub(r"'[^']*/spack-src/", "'", line) for line in _SUBMODULE.findall(output)]
    return "; ".join(dict.fromkeys(errors))[:600] or "Spack failed without a message"


def _build_log(output: str) -> list[str]:
    return re.findall(r"^See build log for details:\n +(\S+)", output, re.M)[-1:]


def _build_error(output: str) -> str | None:
    """Return the error that a build itself ended with: configure's, or the compiler's."""
    for log in _build_log(output):
        for path in sorted(Path(log).parent.glob("spack-*/config.log")):
            text = path.read_text(encoding="utf-8", errors="replace")
            if stopped := _CONFIGURE_STOPPED.findall(text):
                tried = [found.splitlines()[0] for found in _TRIED.findall(text)[-1:]]
                return ": ".join(["configure", stopped[-1].rstrip("."), *tried])
    marked = [line.replace("\n" + " " * 11, "") for line in _MARKED.findall(output)]
    return next(filter(_FATAL.search, marked), None)


def _known(output: str) -> tuple[str, str]:
    """Return reason code and remedy of an error; both are empty if it is not known."""
    found = (row for row in REMEDIES if re.search(row[0], output))
    _, code, remedy = next(found, ("", "", ""))
    if WITHOUT_NETWORK in remedy:
        try:
            chosen = mirror()
        except Fault as err:
            return code, str(err)
        if chosen:
            remedy = f"the mirror in use, {chosen}, does not have it: make it again here"
    return code, remedy


def require_free_space() -> None:
    """Check that the disk has space for a build.

    :raises Fault: if it has not.
    """
    free = shutil.disk_usage(root()).free
    if free < FREE_SPACE:
        raise Fault(
            f"{root()}: {free / 2**20:.0f} MiB are free, but a build needs "
            f"{FREE_SPACE / 2**30:.0f} GiB: free space, or set PLUMBLINE_TOOLS to a folder on "
            f"another disk",
            code="build.too-little-space",
        )


def now() -> str:
    """Return the time in UTC, as in records."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
