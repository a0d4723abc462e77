"""``plumbline`` and ``reframe`` in processes that are forked from one which has loaded both.

Each command is a process of its own, with nothing but modules in it: what it would import first,
which takes as long as a short session, is imported once. What depends on how Python starts is
started as a user does, by ``Testbed.start``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

BIN = Path(sys.executable).parent
COMMANDS = {str(BIN / name) for name in ("plumbline", "reframe")}


def run(
    command: list[str], env: dict[str, str], cwd: Path, patience: float, cores: Iterable[int] = ()
) -> tuple[int, str, str]:
    """Run one of :data:`COMMANDS` to its end; its exit code, standard output and standard error.

    :arg cores: that it may use; those of this process by default.
    :raises subprocess.TimeoutExpired: if it takes longer than ``patience``, in seconds.
    """
    # Python reads these when it starts.
    of_python = {k: v for k, v in env.items() if k.startswith(("PYTHON", "LC_", "LANG"))}
    server = _server(threading.get_ident(), tuple(sorted(of_python.items())))
    with tempfile.TemporaryDirectory(prefix="plumbline-forked-") as folder:
        files = [f"{folder}/out", f"{folder}/err"]
        cores = [*(cores or os.sched_getaffinity(0))]
        request = {"argv": command, "env": env, "cwd": str(cwd), "files": files, "cores": cores}
        server.stdin.write(json.dumps(request).encode() + b"\n")
        group = int(server.stdout.readline())
        ended = select.select([server.stdout], [], [], patience)[0]
        # Also what it left in the background.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        code = int(server.stdout.readline())
        out, err = (Path(file).read_text() for file in files)
    if not ended:
        raise subprocess.TimeoutExpired(command, patience, out, err)
    return code, out, err


def completed(
    command: list[str], env: dict[str, str], **options: object
) -> subprocess.CompletedProcess[str]:
    """As :func:`subprocess.run`, of any command; those of :data:`COMMANDS` are forked."""
    # What PYTHONPATH brings is loaded when Python starts.
    if command[0] not in COMMANDS or "PYTHONPATH" in env:
        return subprocess.run(command, env=env, **options)
    return subprocess.CompletedProcess(command, *run(command, env, Path.cwd(), patience=600))


@functools.cache
def _server(thread: int, env: tuple[tuple[str, str], ...]) -> subprocess.Popen:
    """The process that the commands of a thread are forked from; it ends with this one."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    server = subprocess.Popen([sys.executable, __file__], env=dict(env), **pipes)
    atexit.register(server.communicate)
    return server


def _serve() -> list[str]:
    """Fork a process for each request. In that process, return its command line."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for line in requests:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            requests.close()
            answers.close()
            os.setsid()
            flags = os.O_WRONLY | os.O_CREAT
            opened = [
                os.open(os.devnull, os.O_RDONLY),
                *(os.open(f, flags) for f in request["files"]),
            ]
            for stream, file in enumerate(opened):
                os.dup2(file, stream)
                os.close(file)
            os.chdir(request["cwd"])
            os.sched_setaffinity(0, request["cores"])
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.clear()
            os.environ.update(request["env"])
            return request["argv"]
        print(pid, file=answers, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    sys.exit()


if __name__ == "__main__":
    status = 1

    def end() -> None:
        """To tear all modules down would take longer than many commands."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    # The first to be registered is the last to be called, after all threads.
    atexit.register(end)
    # As in their scripts.
    sys.path[0] = str(BIN)
    import plumbline.check.benchmark
    import plumbline.cli
    import plumbline.operate.nightly
    import plumbline.session.run
    import plumbline.session.session
    import reframe.frontend.cli

    # No collection touches, and so copies, what is loaded; and most commands need none.
    gc.freeze()
    gc.set_threshold(50_000)
    sys.argv = _serve()
    command = plumbline.cli if Path(sys.argv[0]).name == "plumbline" else reframe.frontend.cli
    try:
        status = command.main() or 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    sys.exit(status)
