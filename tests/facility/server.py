"""Runs the stand-ins of a run of the tests: each is a process of its own, forked from one that has
loaded them all. What ``bin/standin`` starts hands over its command line, folder, environment and
standard streams, and ends as the fork does.

A session calls several stand-ins for each job, and most of such a call is to load Python's modules.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import marshal
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

#: The variable with the socket of the server.
VARIABLE = "FACILITY_SERVER"


@functools.cache
def started() -> str:
    """The socket of this process' server, which ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="facility-")
    path = f"{folder.name}/socket"
    # In this package's folder, which so is where modules are found first.
    server = subprocess.Popen(
        [sys.executable, "-E", "-s", "-S", "-m", "facility.server", path],
        cwd=Path(__file__).resolve().parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    server.stdout.readline()
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)
    return path


def serve(path: str) -> None:
    """Fork a process for each connection, until standard input ends."""
    for package in ("facility", "facility.programs"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
    calls: dict[int, socket.socket] = {}
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    # No collection touches, and so copies, what is loaded.
    gc.freeze()
    print("listening", flush=True)
    while True:
        ready, _, _ = select.select([listener, ended, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        if ended in ready:
            ended.recv(4096)
            while calls and (found := os.waitpid(-1, os.WNOHANG))[0]:
                # The one who called may have been killed.
                with calls.pop(found[0]) as call, contextlib.suppress(OSError):
                    call.sendall(marshal.dumps(os.waitstatus_to_exitcode(found[1])))
        if listener in ready:
            call, _ = listener.accept()
            pid = os.fork()
            if pid == 0:
                code = _called(call)
                sys.stdout.flush()
                sys.stderr.flush()
                # To tear all modules down would take longer than most commands.
                os._exit(code)
            calls[pid] = call


def _called(call: socket.socket) -> int:
    """Run a stand-in in the place of the process that called; its exit code."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, _, _ = socket.recv_fds(call, 1 << 20, 3)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
        data += call.recv(1 << 20)
    words, folder, env = marshal.loads(data[4:])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(env)
    # SIGIO ends this process when the one who called is killed, and with it its end of the socket.
    fcntl.fcntl(call, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(call, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([call], [], [], 0)[0]:
        return 1
    return importlib.import_module("facility.main").main(Path(words[0]).name, words[1:])


if __name__ == "__main__":
    serve(sys.argv[1])
