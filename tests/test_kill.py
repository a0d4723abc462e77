"""ReFrame killed with SIGKILL at random moments, then started again: no finished result lost, none
doubled, nothing that it started left to disturb what is measured next.

Real programs: the Intel MPI Benchmarks under MPICH. ``PLUMBLINE_KILLS`` is the number of kills
(10); the moments come from a seeded generator, ``PLUMBLINE_KILLS_SEED``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BIN, ROOT, Testbed
from records import records_of

KILLS = int(os.environ.get("PLUMBLINE_KILLS", "10"))
SEED = int(os.environ.get("PLUMBLINE_KILLS_SEED", "20261122"))

#: Cases of a session, each of some tenths of a second.
CASES = 6
#: Options of the Intel MPI Benchmarks with which a run takes minutes.
ENDLESS = ["-iter", "1000000000", "-time", "600", "-iter_policy", "off"]


@pytest.fixture
def real(make_testbed) -> Iterator[tuple[Testbed, list[str], list[str]]]:
    """A system with the wheels' programs; the command of a session that ends by itself, and what
    makes it one whose last case does not."""
    if not (ROOT / ".tools" / "imb" / "bin" / "IMB-MPI1").is_file():
        pytest.skip(f"{ROOT / '.tools'} is not set up: make setup")
    testbed = make_testbed("local")
    testbed.imb()
    testbed.write(max_jobs=1)
    short = ["PingPong", "-npmin", "2", "-msglog", "3:6"]
    checks = [testbed.check_file(f"ping{n}", executable_opts=short) for n in range(CASES)]
    endless = testbed.check_file("endless", executable_opts=[*short, *ENDLESS])
    given = [word for check in checks for word in ("-c", str(check))]
    return (
        testbed,
        ["run", *given, "-S", "num_samples=2", "-S", "num_warmups=0"],
        ["-c", str(endless)],
    )


def started_by(results: Path) -> dict[int, str]:
    """Processes that a session of these results started: id -> session."""
    mark = f"PLUMBLINE_SESSION={os.path.realpath(results / 'sessions')}/".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            there = [
                v for v in (folder / "environ").read_bytes().split(b"\0") if v.startswith(mark)
            ]
        except OSError:
            continue
        if there:
            found[int(folder.name)] = there[0].decode().rpartition("/")[2]
    return found


def runs_endless(results: Path) -> bool:
    """Whether a case runs that does not end by itself."""
    for number in started_by(results):
        with contextlib.suppress(OSError):
            if b"iter_policy" in Path(f"/proc/{number}/cmdline").read_bytes():
                return True
    return False


def killed_at(
    testbed: Testbed, command: list[str], moment: float, whole: bool, endless: bool
) -> tuple[str, set[int]]:
    """Kills a session some seconds after it began to run cases; before, if that is negative.

    :arg endless: whether it is killed as soon as the case runs that does not end by itself, however
        long a busy machine takes until then.
    :arg whole: whether all of the process group is killed, and not the one process alone.
    :returns: what it printed, and the processes of earlier sessions that were there when it began.
    """
    log = testbed.folder / "log"
    before = set(started_by(testbed.results))
    with log.open("w") as file:
        process = subprocess.Popen(
            [BIN / "plumbline", *command],
            cwd=testbed.folder,
            env=testbed.env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 600
        while moment >= 0 and "start processing checks" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        while endless and not runs_endless(testbed.results):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            # Each look reads the environment of all processes of the machine.
            time.sleep(0.2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0 if endless else abs(moment))
        if not whole:
            process.kill()
            process.wait()
    finally:
        # What the session's own group still has: never a job, which has a group of its own.
        stop_group(process)
    return log.read_text(), before


def stop_group(process: subprocess.Popen) -> None:
    """Ends what a session's own group still has."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def accounted(testbed: Testbed, session: Path) -> Counter:
    """The results of a session, each planned case once."""
    plan = json.loads((session / "plan.json").read_text())
    records = records_of(session)
    assert Counter((f["case"], f["attempt"]) for f in records) == Counter(
        dict.fromkeys(((case, 0) for case in plan["cases"]), 1)
    ), session
    return Counter(f["result"] for f in records)


def test_killed_at_random_moments(real: tuple[Testbed, list[str], list[str]]):
    testbed, command, endless = real
    chance = random.Random(SEED)
    seen: dict[str, bytes] = {}
    printed: dict[str, set[str]] = {}
    orphans = 0
    for number in range(KILLS):
        # Before the plan, in the middle, between two cases, and after the last one.
        moment = chance.uniform(-3, 8)
        last_case = number % 4 == 0
        output, before = killed_at(
            testbed,
            [*command, *endless],
            abs(moment) if last_case else moment,
            whole=bool(number % 2),
            endless=last_case,
        )
        if "start processing checks" in output:
            # Nothing of earlier sessions ran beside its cases.
            assert not before & set(started_by(testbed.results)), output
            orphans += len(re.findall(r"but its processes do: .*: ending them", output))
        for session in testbed.session_folders():
            path = session / "records.jsonl"
            now = path.read_bytes() if path.exists() else b""
            # Lines are added, and never changed.
            assert now.startswith(seen.get(session.name, b"")), session
            seen[session.name] = now
        if found := re.search(r"^plumbline: session (\S+): \d+ job", output, re.M):
            ended = re.findall(
                r"^\[ +(?:OK|FAIL) +\] \(\d+/\d+\) .* (/[0-9a-f]+ @\S+)$", output, re.M
            )
            printed[found[1]] = set(ended)
    last = testbed.plumbline(*command)
    assert last.code == 0, last.output
    assert started_by(testbed.results) == {}
    total = Counter()
    for session in sorted(testbed.session_folders()):
        found = accounted(testbed, session)
        total += found
        measured = {f"/{f['case']}" for f in records_of(session) if f["result"] != "unfinished"}
        # What ReFrame said had ended is in the records.
        assert printed.get(session.name, set()) <= measured, session
        assert (session / "end.json").exists() and not (session / "running").exists()
        assert (session / "records.jsonl").read_bytes().startswith(seen.get(session.name, b""))
    assert orphans
    assert set(total) <= {"pass", "unfinished"}, total
    listed = testbed.plumbline("history", "list", "--format=json")
    assert listed.code == 0, listed.output
    assert sum(sum(row["results"].values()) for row in json.loads(listed.out)) == total.total()
    print(f"{KILLS} kills: {dict(total)}, jobs of {orphans} ended by the next")
