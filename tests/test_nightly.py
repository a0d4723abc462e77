"""The night's run and the look after a maintenance: one at a time, within a budget, on a page."""

from __future__ import annotations

import configparser
import datetime
import errno
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import junitparser
import pytest
import yaml
from conftest import PATIENCE, ROOT, Done, Testbed, fault_of
from examples import prints_alike, shown
from halfway import FILLING, PINGPONG, filling_disk_, halfway  # noqa: F401 - fixture
from histories import fom, line, store
from plumbline.core.errors import Fault
from plumbline.operate import nightly
from records import records_of
from test_export import samples
from test_waivers import FAR, FIO, NEAR, refer

#: A night without the inventory's rules, of one quick case.
NIGHT = ["nightly", "--no-strict", "--mode=smoke", *FIO]


def page_of(done: Done, name: str = "nightly") -> str:
    return (done.sessions[-1] / f"{name}.md").read_text()


def junit_of(done: Done, name: str = "nightly") -> dict[str, list]:
    """Suite -> its test cases."""
    path = done.sessions[-1] / f"{name}.xml"
    return {suite.name: list(suite) for suite in junitparser.JUnitXml.fromfile(str(path))}


def outcome_of(case: junitparser.TestCase) -> list[type]:
    return [type(result) for result in case.result]


# -- a night -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Night:
    """A night that ended.

    :ivar report: the folder of its report.
    """

    testbed: Testbed
    done: Done
    report: Path


@pytest.fixture(scope="module")
def quiet(make_testbed: Callable[..., Testbed]) -> Night:
    """A night without a fault, as cron starts it."""
    testbed = make_testbed()
    testbed.environment("disk", "fio")
    refer(testbed, NEAR)
    shutil.copytree(ROOT / "reference" / "known", testbed.reference / "known", dirs_exist_ok=True)
    report = testbed.folder / "report"
    done = testbed.run(ROOT / "ci" / "nightly", *NIGHT[1:], "--report", report, "--budget=10m")
    return Night(testbed, done, report)


def test_a_night_without_a_fault(quiet: Night):
    done, report = quiet.done, quiet.report
    assert done.code == 0, done.output
    page = page_of(done)
    assert page.startswith("# testbed: OK\n")
    assert f"| session | 0 | {done.session.name}: OK |" in page
    # Nothing was judged of its trend, and the page shows that.
    suites = junit_of(done)
    outcomes = {case.name: outcome_of(case) for case in suites["nightly"]}
    assert outcomes == {"session": [], "trend": [junitparser.Skipped], "report": []}
    assert (report / "index.html").exists()
    assert f"| report | 0 | {report / 'index.html'}: " in page
    plan = json.loads((done.session / "plan.json").read_text())
    assert plan["extras"] == {"run": "nightly"}
    assert done.out.strip().endswith(f"plumbline: {done.session / 'nightly.md'}")


def test_a_night_with_faults(testbed: Testbed):
    """A figure that is too low; and it is strict, so that it needs an inventory."""
    testbed.environment("disk", "fio")
    refer(testbed, FAR)
    out = testbed.folder / "out"
    done = testbed.plumbline("nightly", "--mode=smoke", *FIO, "--out", out)
    assert done.code == 1, done.output
    assert not (done.session / "nightly.md").exists()
    page = (out / "nightly.md").read_text()
    assert page.startswith("# testbed: faults found\n") and "**Failed**" in page
    example = shown("nightly.md", "# testbed").replace("/opt/plumbline-site", "...")
    assert prints_alike(page, example.replace("login", platform.node())), page
    (fault,) = json.loads((done.session / "end.json").read_text())["faults"]
    assert fault.startswith("strict: ") and "inventory/testbed.json" in page
    suites = {s.name: s for s in junitparser.JUnitXml.fromfile(str(out / "nightly.xml"))}
    assert suites["nightly"].failures == 1
    suite = suites[f"plumbline testbed {done.session.name}"]
    assert (suite.failures, suite.errors) == (1, 1)
    metrics = samples((out / "nightly.prom").read_text())
    for name in ("plumbline_nightly_exit_code", "plumbline_session_exit_code"):
        assert metrics[name] == [({"system": "testbed"}, 1)]
    found = {labels["state"]: value for labels, value in metrics["plumbline_nightly_findings"]}
    assert found == {"new": 0, "known": 0, "waived": 0}
    assert metrics["plumbline_nightly_timestamp_seconds"][0][1] > done.session.stat().st_ctime - 60


def test_a_night_in_which_nothing_runs(testbed: Testbed):
    """It has no folder of its own, so that its page is printed."""
    testbed.environment("disk", "fio")
    done = testbed.plumbline("nightly", "--no-strict", "-n", "nosuch")
    assert done.code == 2 and done.sessions == []
    page = done.out[done.out.index("# testbed: inconclusive\n") :]
    assert "session.nothing-selected" in page


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--system=testbad"], "system.not-found"),
        (["--mode=smoek"], "input.unknown-name"),
        # An option of neither: ReFrame's word, without all the options that it has.
        (["--sytem=testbed"], "session.refused-by-reframe"),
        (["--after-maintenance", "--maintenance", "a,b=c"], "input.wrong-option"),
        (["--maintenance", "x"], "input.wrong-option"),
        (["--budget=soon"], "input.wrong-option"),
        (["--budget=0h"], "input.wrong-option"),
        (["--keep-stage=-1d"], "input.wrong-option"),
    ],
)
def test_bad_input(testbed: Testbed, words: list[str], code: str):
    testbed.environment("disk", "fio")
    done = testbed.asked(*NIGHT, *words)
    assert (done.code, done.codes) == (2, [code])
    assert testbed.session_folders() == set()
    assert len(done.err.splitlines()) < 5, done.err


@pytest.mark.parametrize(
    ("words", "broken", "name", "code"),
    [
        (["--system=testbad"], "", "testbad", "system.not-found"),
        (["--system=testbed"], "systems: [", "testbed", "input.wrong-file"),
        (["--mode=smoek"], "", "testbed", "input.unknown-name"),
    ],
)
def test_a_night_that_cannot_begin_replaces_the_page(
    testbed: Testbed, words: list[str], broken: str, name: str, code: str
):
    """That of the night before would pass for its own."""
    testbed.environment("disk", "fio")
    if broken:
        (testbed.systems / "testbed.yaml").write_text(broken)
    out = testbed.folder / "out"
    out.mkdir()
    (out / "nightly.md").write_text("# testbed: OK\n")
    umask = os.umask(0o027)
    done = testbed.asked(*NIGHT, *words, "--out", out)
    os.umask(umask)
    assert (done.code, {*done.codes}) == (2, {code})
    page = (out / "nightly.md").read_text()
    assert page.startswith(f"# {name}: inconclusive\n") and f"[{code}]" in page
    assert f"site folder `{testbed.folder}`" in page or f"site folder {testbed.folder}\n" in page
    ((case,),) = junitparser.JUnitXml.fromfile(str(out / "nightly.xml"))
    assert outcome_of(case) == [junitparser.Error]
    metrics = samples((out / "nightly.prom").read_text())
    assert metrics.keys() == {"plumbline_nightly_exit_code", "plumbline_nightly_timestamp_seconds"}
    assert metrics["plumbline_nightly_exit_code"] == [({"system": name}, 2)]
    # node_exporter runs as another user.
    assert stat.S_IMODE((out / "nightly.prom").stat().st_mode) == 0o644


@pytest.mark.parametrize("name", ["missing", "file"])
def test_the_page_says_that_there_is_no_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path / name))
    assert nightly.page._markdown("", "", []).splitlines()[2].endswith(", no site folder")


def test_the_worst_counts():
    assert nightly.parts.worst([]) == nightly.parts.worst([0, 0]) == 0
    assert nightly.parts.worst([0, 2]) == 2
    assert nightly.parts.worst([2, 1, 0]) == 1


# -- one at a time -------------------------------------------------------------------------------


@pytest.fixture
def running(
    make_testbed: Callable[..., Testbed],
) -> Iterator[tuple[Testbed, subprocess.Popen, Path]]:
    testbed = make_testbed("local")
    with halfway(testbed, "nightly", "--no-strict") as (process, release):
        yield testbed, process, release


def test_nights_of_two_systems_share_a_results_folder(tmp_path: Path):
    again = nightly._locked(tmp_path, "one")
    with nightly._locked(tmp_path, "one"), nightly._locked(tmp_path, "two"):
        fault_of(again.__enter__, "session.already-running")
    # The next one can have it, and finds nobody named in it.
    assert (tmp_path / "nightly-one.lock").read_text() == ""
    with nightly._locked(tmp_path, "one"):
        assert f"process {os.getpid()} on " in (tmp_path / "nightly-one.lock").read_text()


def test_a_lock_that_cannot_be_had_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(file: int, way: int):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "file").touch()
    for folder, code in ((tmp_path / "file", "files.not-writable"), (tmp_path, "files.no-locks")):
        fault_of(nightly._locked(folder, "one").__enter__, code, "nightly-one.lock: ")
        monkeypatch.setattr(fcntl, "flock", flock)


def test_a_second_night_is_refused_and_a_stopped_one_writes_its_page(running):
    testbed, process, _ = running
    out = testbed.folder / "out"
    out.mkdir()
    (out / "nightly.md").write_text("# of the first\n")
    second = testbed.plumbline("nightly", "--no-strict", *PINGPONG, "--out", out)
    assert second.code == 2 and second.sessions == []
    assert (out / "nightly.md").read_text() == "# of the first\n"
    (line,) = second.err.strip().splitlines()
    owner = rf"\(process {process.pid} on {platform.node()} since 20\S+Z\)"
    assert re.search(rf"{owner}.* \[session\.already-running\]$", line)
    process.send_signal(signal.SIGTERM)
    done = testbed.ended(process, set())
    assert done.code == 2, done.output
    (session,) = testbed.session_folders()
    results = {f["environment"]: f["result"] for f in records_of(session)}
    assert results == {"quick": "pass", "waits": "aborted"}
    assert (session / "nightly.md").read_text().startswith("# local: inconclusive\n")


def test_a_killed_night_leaves_its_session_and_blocks_no_longer_than_that(running):
    testbed, process, release = running
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (first,) = testbed.session_folders()
    second = testbed.plumbline("nightly", "--no-strict", *PINGPONG)
    assert (second.code, second.codes) == (2, ["session.already-running"])
    assert f"process {process.pid} " in second.err and "killed" in second.err
    release.touch()
    process.communicate(timeout=PATIENCE)
    # The session went on to its own end.
    assert [f["result"] for f in records_of(first)] == ["pass", "pass"]
    with nightly._locked(testbed.results, "local"):
        pass


def test_a_night_and_its_session_killed(running):
    testbed, process, _ = running
    (first,) = testbed.session_folders()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    # The lock's line still names it, and the lock is free.
    assert f"process {process.pid} " in (testbed.results / "nightly-local.lock").read_text()
    done = testbed.plumbline("nightly", "--no-strict", *PINGPONG, "-p", "quick")
    assert done.code == 0, done.output
    assert first.name in done.out
    found = [(f["result"], f["code"]) for f in records_of(first)]
    assert found == [("pass", None), ("unfinished", "case.unfinished")]


# -- budget --------------------------------------------------------------------------------------


def test_a_budget_that_is_spent(testbed: Testbed):
    for name in ("one", "other"):
        testbed.environment(name, "imb", STANDIN_WAIT=testbed.folder / "never")
    testbed.write(max_jobs=1)
    done = testbed.plumbline("nightly", "--no-strict", *PINGPONG, "--sessions=2", "--budget=6s")
    assert done.code == 2, done.output
    assert [(f["result"], f["code"]) for f in done.records] == [
        ("aborted", "case.budget-spent")
    ] * 2
    page = page_of(done)
    assert page.startswith("# testbed: inconclusive\n")
    assert "| session 2 of 2 | 2 | " in page
    assert "budget spent" in page.partition("## Session 1 of 2")[2]


def test_what_has_run_is_judged_though_the_budget_is_spent(testbed: Testbed):
    """The budget ends while the last program runs its last moment."""
    testbed.environment("quick", "imb")
    testbed.write(max_jobs=1)
    hook = testbed.folder / "late" / "sitecustomize.py"
    hook.parent.mkdir()
    # Every case ends as the budget does.
    hook.write_text(
        "import sys\n"
        "if sys.argv[:1] and 'plumbline' in sys.argv[0]:\n"
        "    import plumbline.session.session as session\n"
        "    exits = session.Session.on_task_exit\n"
        "    def on_task_exit(self, task):\n"
        "        exits(self, task)\n"
        "        self.budget = 0.001\n"
        "    session.Session.on_task_exit = on_task_exit\n"
    )
    done = testbed.plumbline("run", *PINGPONG, "--budget=10m", PYTHONPATH=hook.parent)
    assert [f["result"] for f in done.records] == ["pass"], done.output


# -- disks ---------------------------------------------------------------------------------------


def test_a_night_on_a_disk_that_fills_up(testbed: Testbed, filling_disk: Path):
    out = testbed.folder / "out"
    done = testbed.plumbline("nightly", "--no-strict", *FILLING, "--out", out)
    assert done.code in (1, 2), done.output
    assert "plumbline-record {" in done.out and "Traceback" not in done.output
    assert "plumbline history recover" in (out / "nightly.md").read_text()
    # The disk is freed, and the log brings back what it could not take.
    stored = len(records_of(done.session))
    filling_disk.unlink()
    log = testbed.folder / "nightly.log"
    log.write_text("".join(f"Nov 22 01:00:00 login1 {line}\n" for line in done.out.splitlines()))
    assert stored < 2
    # A second time, there is nothing to do.
    for _ in range(2):
        assert testbed.asked("history", "recover", log).code == 0
        assert sorted(f["environment"] for f in records_of(done.session)) == ["fills", "quick"]


def test_records_that_turn_read_only(
    make_testbed: Callable[..., Testbed], small_disk: Callable[[str], Path]
):
    disk = small_disk("8m")
    testbed = make_testbed("local")
    testbed.results = disk
    testbed.env["PLUMBLINE_RESULTS"] = str(disk)
    with halfway(testbed, "nightly", "--no-strict") as (process, release):
        try:
            # Not the file system itself, which stays writable while ReFrame's log is open.
            for words in (["--bind", str(disk), str(disk)], ["-o", "remount,bind,ro", str(disk)]):
                subprocess.run(["mount", *words], check=True)
            release.touch()
            done = testbed.ended(process, set())
            # Another one does not even begin.
            refused = testbed.plumbline("nightly", "--no-strict", *PINGPONG)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)
    assert done.code == 2, done.output
    assert "Traceback" not in done.output, done.output
    assert os.strerror(errno.EROFS) in done.out
    assert "plumbline-record {" in done.out, done.output
    assert (refused.code, refused.codes) == (2, ["files.not-writable"])
    assert str(disk) in refused.err
    # What could not be stored is brought back once the disk can be written.
    log = testbed.folder / "nightly.log"
    log.write_text(done.out)
    assert testbed.asked("history", "recover", log).code == 0
    (session,) = testbed.session_folders()
    assert sorted(f["environment"] for f in records_of(session)) == ["quick", "waits"]


# -- the clock -----------------------------------------------------------------------------------

CLOCK = """\
import os, pathlib, time
real, real_gmtime = time.time, time.gmtime
def now():
    return real() - (7200 if pathlib.Path(os.environ["JUMP"]).exists() else 0)
time.time = now
time.gmtime = lambda seconds=None: real_gmtime(now() if seconds is None else seconds)
"""

#: The job's `date` of the same clock.
DATE = """\
#!/bin/sh
PATH=/usr/bin:/bin
[ -e "$JUMP" ] && exec date -d '7200 seconds ago' "$@"
exec date "$@"
"""


def test_a_clock_that_jumps_back(make_testbed: Callable[..., Testbed]):
    testbed = make_testbed("local")
    hook = testbed.folder / "clock" / "sitecustomize.py"
    hook.parent.mkdir()
    hook.write_text(CLOCK)
    date = hook.with_name("date")
    date.write_text(DATE)
    date.chmod(0o755)
    jump = testbed.folder / "jump"
    before = testbed.session_folders()
    path = f"{hook.parent}:{os.environ['PATH']}"
    env = {"PYTHONPATH": hook.parent, "PATH": path, "JUMP": jump}
    with halfway(testbed, "run", **env) as (process, release):
        jump.touch()
        release.touch()
        during = testbed.ended(process, before)
    assert during.code == 0, during.output
    assert [f["result"] for f in during.records] == ["pass", "pass"]
    assert re.search(r" -7[12]\d\d s ", during.out)
    after = testbed.plumbline("run", *PINGPONG, "-p", "quick", **env)
    assert after.code == 0, after.output
    first, second = during.session.name, after.session.name
    assert second < first
    assert first in after.out
    listed = testbed.asked("history", "list", "--format=json")
    assert listed.code == 0 and f"plumbline: {first}: " in listed.err
    assert {row["session"] for row in json.loads(listed.out)} == {first, second}


# -- parts, in this process: the trend -------------------------------------------------------------


@pytest.fixture
def results(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder of this process, which starts no other."""

    def refused(*_, **__):
        raise AssertionError("a part started a process")

    monkeypatch.setenv("PLUMBLINE_RESULTS", str(testbed.results))
    monkeypatch.setattr(subprocess, "Popen", refused)
    return testbed.results


def _night(results: Path, day: int, level: float, hour: int = 1, **fields: object) -> str:
    """A session of a day from September on, with a little noise; its name."""
    end = datetime.datetime(2026, 9, 1, hour) + datetime.timedelta(days=day)
    name = f"{end:%Y%m%dT%H%M%SZ}-{day:06x}"
    about = {"session": name, "time": f"{end:%Y-%m-%dT%H:%M:%SZ}", **fields}
    store(results, line(foms=[fom((10.0 + 0.01 * (day % 5)) * level)], **about))
    return name


def _series(results: Path, last: int, since: int) -> str:
    """Nights until the last one, which lose a tenth from one of them on; the last one's name."""
    return [_night(results, day, 1.1 if day >= since else 1.0) for day in range(last)][-1]


def _found(results: Path, first: int, level: float) -> int:
    """Nights of a level from one of them on, up to that which finds it; the number of the next."""
    for day in range(first, first + 10):
        part = nightly.parts.trend("alpha", _night(results, day, level))
        if part.code:
            break
    assert part.code == 1 and "1 new" in part.message and "**new**" in part.page
    assert part.findings["new"] == 1
    outcomes = [outcome_of(case) for case in part.suites[0]]
    assert outcomes.count([junitparser.Failure]) == 1
    return day + 1


def test_a_change_is_a_fault_on_the_night_it_is_found(results: Path):
    _series(results, 40, since=40)
    # On the next night it is known, and still there.
    part = nightly.parts.trend("alpha", _night(results, _found(results, 40, 1.1), 1.1))
    assert part.code == 0 and "0 new, 1 known" in part.message and "regression" in part.page
    assert part.findings == {"new": 0, "known": 1, "waived": 0}
    (case,) = part.suites[0]
    assert outcome_of(case) == [junitparser.Skipped]


def test_a_night_that_begins_before_midnight_has_reported_what_it_found(results: Path):
    """The first case of each ends after midnight."""
    codes = []
    for day in range(46):
        began = datetime.datetime(2026, 9, 1, 23, 58) + datetime.timedelta(days=day)
        end = began + datetime.timedelta(minutes=7)
        name = f"{began:%Y%m%dT%H%M%SZ}-{day:06x}"
        figure = fom((10.0 + 0.01 * (day % 5)) * (1.1 if day >= 40 else 1.0))
        about = {"session": name, "time": f"{end:%Y-%m-%dT%H:%M:%SZ}"}
        store(results, line(foms=[figure], extras={"run": "nightly"}, **about))
        codes += [nightly.parts.trend("alpha", name).code] if day >= 40 else []
    assert sum(codes) == 1


def test_a_second_loss_of_a_figure_is_a_new_fault(results: Path):
    _series(results, 65, since=40)
    after = _found(results, 65, 1.25)
    part = nightly.parts.trend("alpha", _night(results, after, 1.25))
    assert part.code == 0 and "0 new, 2 known" in part.message
    assert len({case.name for case in part.suites[0]}) == 2


def test_what_no_night_has_reported_is_new(results: Path):
    """Sessions by hand have lost a tenth for days; no nightly ran, or the last was cut off."""
    run = {"extras": {"run": "nightly"}}
    for day in range(40):
        _night(results, day, 1.0, **run)
    for day in range(40, 46):
        _night(results, day, 1.1, hour=14)
    cut_off = _night(results, 46, 1.1, **run)
    plan = results / "sessions" / cut_off / "plan.json"
    cases = json.loads(plan.read_text())
    cases["cases"]["lost"] = next(iter(cases["cases"].values()))
    plan.write_text(json.dumps(cases))
    tonight = _night(results, 47, 1.1, **run)
    part = nightly.parts.trend("alpha", tonight)
    assert part.code == 1 and "1 new" in part.message
    part = nightly.parts.trend("alpha", _night(results, 48, 1.1, **run))
    assert part.code == 0 and "0 new, 1 known" in part.message


def test_what_a_broken_trend_has_not_reported_is_new(results: Path):
    """Nights had sessions that show a loss, and no trend: its part broke, or was killed."""
    run = {"extras": {"run": "nightly"}}
    names = [_night(results, day, 1.1 if day >= 40 else 1.0, **run) for day in range(47)]
    last, tonight = names[-2:]
    mark = f"sessions/{{}}/{nightly.parts.REPORTED}"
    (results / mark.format(names[39])).touch()
    part = nightly.parts.trend("alpha", tonight)
    assert part.done and part.code == 1 and "1 new" in part.message
    (results / mark.format(last)).touch()
    assert nightly.parts.trend("alpha", tonight).code == 0


# -- the other parts -------------------------------------------------------------------------------


def _fleet(results: Path, slow: str = "", size: int = 12, nights: int = 6) -> list[str]:
    """Nights in which each node was measured by itself, one of them half as fast; their names."""
    names = []
    for night in range(1, nights + 1):
        lines = []
        for n in range(size):
            node = f"n{n}"
            # Bytes per second of a healthy node, with a little noise.
            value = (
                100.0 * (1 + 0.002 * ((7 * n + 3 * night) % 5 - 2)) * (0.5 if node == slow else 1)
            )
            figure = fom(value, metric="triad", unit="GB/s", better="higher", size=None)
            check = f"stream %.nid={node}"
            lines.append(line(n, day=night, check=check, nodes=[node], foms=[figure]))
        names.append(store(results, *lines, plan=size).name)
    return names


def test_too_few_nights_are_skipped_whatever_the_words(
    results: Path, monkeypatch: pytest.MonkeyPatch
):
    name = _series(results, 5, since=5)
    for words in ("not judged: some", "anything else"):
        monkeypatch.setattr(nightly.parts.listing.Listing, "unjudged", words)
        part = nightly.parts.trend("alpha", name)
        assert (part.code, part.skipped) == (0, True)


def test_a_history_that_cannot_be_read_whole_is_inconclusive(testbed: Testbed, results: Path):
    name = _series(results, 5, since=5)
    with (results / "sessions" / name / "records.jsonl").open("a") as file:
        file.write("{half\n" * 9)
    part = nightly.parts.trend("alpha", name)
    assert (part.code, part.skipped) == (2, False)
    assert "records.jsonl:2" in part.message
    assert nightly.parts.report_site(testbed.folder / "report").code == 2


def test_a_session_that_was_killed_after_a_fault_is_a_fault(results: Path):
    name = "20261120T030000Z-a1b2c3"
    store(results, line(session=name, result="fail", foms=[fom(1.0, verdict="fail")]))
    for code, expected in ((-9, 1), (2, 1), (0, 1)):
        assert nightly.parts.session("session", name, code, []).code == expected, code


#: Those that the start of a session reads.
OPTIONS = SimpleNamespace(
    maintenance="", strict=True, budget=0, orphans="keep", system=None, mode="nightly", arguments=()
)


def test_a_night_that_is_stopped_while_a_session_starts_ends_it(monkeypatch: pytest.MonkeyPatch):
    sent = []

    def popen(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        return SimpleNamespace(send_signal=sent.append, wait=lambda: 2)

    monkeypatch.setattr(nightly.subprocess, "Popen", popen)
    with nightly._StopHandler() as stop:
        assert nightly._run_session(OPTIONS, "s", 0.0, 0, stop) == (2, [])
    assert stop.stopped and sent == [signal.SIGINT]


def test_what_cannot_be_cleaned_up_is_reported(results: Path, monkeypatch: pytest.MonkeyPatch):
    """The page and what was found before are not lost."""

    def fails(*_):
        raise Fault("job 7 is left", code="session.leftover-jobs")

    monkeypatch.setattr(nightly.subprocess, "Popen", lambda *_, **__: None)
    monkeypatch.setattr(nightly, "_wait", lambda *_: (-9, ["killed"]))
    monkeypatch.setattr(nightly.recovery, "clean_up", fails)
    code, messages = nightly._run_session(OPTIONS, "s", 0.0, 0, nightly._StopHandler())
    assert (code, messages[0]) == (-9, "killed")
    assert "session.leftover-jobs" in messages[1]


@pytest.mark.parametrize(("slow", "code"), [("n3", 1), ("", 0)])
def test_slow_nodes(results: Path, slow: str, code: int):
    names = _fleet(results, slow)
    part = nightly.parts.screening("alpha", names[-1:], required=False)
    assert part.code == code, part.message
    found = [(case.name, case.classname, outcome_of(case)) for case in part.suites[0]]
    assert found == ([("n3", "slow node", [junitparser.Failure])] if slow else [])
    assert part.page.count("\n- ") + bool(part.page) == len(found)


def test_a_slow_node_that_is_waived_is_no_fault_after_a_maintenance(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    names = _fleet(results, "n3")
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "waivers.yaml").write_text(
        f"- {{id: known, reason: a fan, owner: me, expires: {datetime.date.today()}, "
        "match: {system: alpha, node: n3, results: [slow]}}\n"
    )
    part = nightly.parts.screening("alpha", names[-1:], required=False)
    (suite,) = part.suites
    assert (part.code, [outcome_of(case) for case in suite]) == (0, [[junitparser.Skipped]])
    assert re.findall(r"\d+", part.message)[:2] == ["1", "1"]
    assert part.page.startswith("- waived: ")


@pytest.mark.parametrize(("required", "code"), [(False, 0), (True, 2)])
def test_one_node_has_no_peers(results: Path, required: bool, code: int):
    """As in a session whose cases run on a node each: it is not screened, and says so."""
    part = nightly.parts.screening("alpha", _fleet(results, size=1), required)
    assert (part.code, part.skipped) == (code, not required)
    assert "plumbline sweep" in part.message


@pytest.mark.parametrize(("required", "code"), [(False, 0), (True, 2)])
def test_a_figure_of_few_nodes_beside_one_of_many(
    results: Path, monkeypatch: pytest.MonkeyPatch, required: bool, code: int
):
    """It is inconclusive if nodes are to be screened; the other one is screened all the same."""
    names = _fleet(results)
    found = nightly.parts.screen.Screening(names, messages=["few"], sure=True, lacking=True)
    monkeypatch.setattr(nightly.parts.screen, "screen_history", lambda *_, **__: found)
    part = nightly.parts.screening("alpha", names[-1:], required)
    assert (part.code, part.skipped, part.message) == (code, False, "0 flagged; few")


@pytest.mark.parametrize(
    "error", [Fault("the disk is gone", "files.not-writable"), RuntimeError("the disk is gone")]
)
def test_a_part_that_breaks_takes_no_other_with_it(
    testbed: Testbed, results: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    def breaks(*_, **__):
        raise error

    name = _series(results, 5, since=5)
    (results / "sessions" / name / "end.json").write_text('{"code": 1, "notes": [], "faults": []}')
    for module, function in [
        (nightly.parts.report, "write"),
        (nightly.parts.listing, "of_history"),
        (nightly.parts.export, "load"),
        (nightly.parts.screen, "screen_history"),
    ]:
        monkeypatch.setattr(module, function, breaks)
    parts = [
        nightly.parts.report_site(testbed.folder / "report"),
        nightly.parts.trend("alpha", name),
        nightly.parts.screening("alpha", [name], required=False),
        # What the session itself found still counts.
        nightly.parts.session("session", name, 1, []),
    ]
    assert [part.code for part in parts] == [2, 2, 2, 1]
    if isinstance(error, Fault):
        assert all(part.message.endswith("[files.not-writable]") for part in parts)
    assert all("the disk is gone" in part.message for part in parts)


# -- after a maintenance -------------------------------------------------------------------------


def _earlier(testbed: Testbed, model: Path, nights: int, factor: float) -> None:
    """Copies of a session on earlier nights, its values other by a factor and some noise."""
    plan = json.loads((model / "plan.json").read_text())
    for night in range(nights):
        began = datetime.datetime(2026, 10, 1, 1) + datetime.timedelta(days=night)
        name = f"{began:%Y%m%dT%H%M%SZ}-{night:06x}"
        folder = model.parent / name
        folder.mkdir()
        extras = {"run": "nightly"}
        (folder / "plan.json").write_text(json.dumps(plan | {"session": name, "extras": extras}))
        with (folder / "records.jsonl").open("w") as file:
            for fields in records_of(model):
                fields |= {"session": name, "extras": extras, "time": f"{began:%Y-%m-%dT%H:%M:%SZ}"}
                for fom in fields["foms"]:
                    fom["value"] *= factor * (1 + 0.001 * (night % 5 - 2))
                file.write(json.dumps(fields) + "\n")


@pytest.fixture(scope="module")
def maintained(quiet: Night, make_testbed: Callable[..., Testbed]) -> tuple[Testbed, Done]:
    """A look after a maintenance, with twelve nights before it."""
    testbed = make_testbed()
    testbed.environment("disk", "fio")
    refer(testbed, NEAR)
    (testbed.results / "sessions").mkdir()
    model = shutil.copytree(quiet.done.session, testbed.results / "sessions" / "model")
    _earlier(testbed, model, 12, 1.0)
    shutil.rmtree(model)
    words = ["--no-strict", "--mode=smoke", "--maintenance=2026-11", *FIO]
    return testbed, testbed.run(ROOT / "ci" / "post-maintenance", *words)


def test_after_a_maintenance(maintained: tuple[Testbed, Done]):
    _, done = maintained
    assert done.code == 0, done.output
    page = page_of(done, "post-maintenance")
    assert page.startswith("# testbed, after maintenance 2026-11: go\n")
    assert len(done.sessions) == 3
    for session in done.sessions:
        extras = json.loads((session / "plan.json").read_text())["extras"]
        assert extras == {"run": "maintenance", "maintenance": "2026-11"}
    suites = junit_of(done, "post-maintenance")
    assert "before and after" in [case.name for case in suites["nightly"]]
    # GitLab shows only the first of several test cases with one class and name.
    named = [(case.classname, case.name) for suite in suites.values() for case in suite]
    assert len(named) > 6 and len({*named}) == len(named)


@pytest.mark.parametrize(
    ("factor", "nights", "code"), [(1.0, 10, 0), (1.2, 10, 1), (1.0, 1, 2), (1.0, 0, 2)]
)
def test_go_and_no_go(
    maintained: tuple[Testbed, Done],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    factor: float,
    nights: int,
    code: int,
):
    """Against so many nights before, that were so much better; of none, one and ten."""
    testbed, done = maintained
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    after = [shutil.copytree(folder, tmp_path / "sessions" / folder.name)
             for folder in done.sessions]  # fmt: skip
    _earlier(testbed, after[0], min(nights, 1) * 12, factor)
    options = SimpleNamespace(
        maintenance="2026-11", nights=nights, allow_inconclusive=0, mode="smoke"
    )
    part = nightly.parts.comparison(options, "testbed")
    assert part.code == code, part.message
    if nights:
        verdict = nightly.parts.MAINTENANCE[code]
        assert part.message.startswith(f"{verdict}: 3 ") and f" {nights} " in part.message
    # What is lacking is on the page.
    assert ("`--maintenance=2026-11`" in part.page) == (code == 2)


def test_a_duet_is_no_session_before_or_after_a_maintenance(results: Path):
    after = {"run": "maintenance", "maintenance": "m"}
    duet = {"duet-a": "gnu", "duet-b": "other"}
    extras = [{}] * 4 + [duet] + [after] * 3 + [duet | after]
    names = [_night(results, day, 1.0, extras=of) for day, of in enumerate(extras)]
    options = SimpleNamespace(maintenance="m", nights=10, allow_inconclusive=0, mode="smoke")
    part = nightly.parts.comparison(options, "alpha")
    assert part.command == f"plumbline compare {','.join(names[:4])} {','.join(names[5:8])}"
    assert part.done and "3 sessions after against 4 before" in part.message


def test_a_maintenance_without_a_night_before(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.plumbline(*NIGHT, "--after-maintenance", "--sessions=1")
    assert done.code == 2, done.output
    page = page_of(done, "post-maintenance")
    assert re.match(r"# testbed, after maintenance 20\d\d-\d\d-\d\d: not enough data\n", page)
    assert re.search(r"\| before and after \| 2 \|", page)
    assert re.search(r"\| slow nodes \| 0 \| .?not screened", page), page


# -- what starts it ------------------------------------------------------------------------------


def _unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str
    found.read_string((ROOT / "ci" / f"plumbline-nightly.{name}").read_text())
    return found


def test_the_units_of_systemd(tmp_path: Path):
    service, timer = _unit("service"), _unit("timer")
    # It runs until it is done, as long as its budget says and no longer.
    assert service["Service"]["Type"] == "oneshot"
    program, *words = service["Service"]["ExecStart"].replace("\\\n", " ").split()
    assert program.endswith("ci/nightly")
    assert words[:5] == ["--system", "NAME", "--budget", "6h", "--out"]
    # What a profile would set.
    variables = dict(one.split("=") for one in service["Service"]["Environment"].split())
    assert variables.keys() == {"PLUMBLINE_SITE", "PLUMBLINE_RESULTS"}
    # systemd makes these with mode 0755, so that node_exporter can read the metrics there.
    made = [f"/var/lib/{name}" for name in service["Service"]["StateDirectory"].split()]
    assert words[5] in made
    # systemd opens it before it makes any folder of the unit's own.
    log = Path(service["Service"]["StandardOutput"].removeprefix("append:"))
    assert log.parent == Path("/var/log")
    assert service["Service"]["StandardError"] == "inherit"
    assert service["Service"]["UMask"] == "0027"
    # A SIGTERM to all of the unit would end the jobs, which is a fault of theirs.
    assert service["Service"]["KillMode"] == "mixed"
    # What ran is judged then, and the page written.
    assert service["Service"]["TimeoutStopSec"] == "10min"
    assert timer["Timer"]["OnCalendar"] and timer["Timer"]["Persistent"] == "true"
    assert timer["Install"]["WantedBy"] == "timers.target"
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: the units were only read")
    for name in ("service", "timer"):
        text = (ROOT / "ci" / f"plumbline-nightly.{name}").read_text()
        (tmp_path / f"plumbline-nightly.{name}").write_text(
            text.replace("/opt/plumbline", str(ROOT)).replace("User=plumbline\n", "")
        )
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.glob("plumbline-*")))],
        capture_output=True,
        text=True,
    )
    faults = [line for line in done.stderr.splitlines() if "plumbline" in line]
    assert done.returncode == 0 and not faults, done.stderr


@pytest.mark.parametrize("script", ["nightly", "post-maintenance"])
def test_a_checkout_without_its_setup(tmp_path: Path, script: str):
    copied = shutil.copytree(ROOT / "ci", tmp_path / "ci") / script
    done = subprocess.run([copied], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "make setup" in done.stderr
    assert str(tmp_path / "ci" / "../.venv/bin/plumbline") in done.stderr


@pytest.mark.parametrize(
    "missing", ["PLUMBLINE_RESULTS", "PLUMBLINE_TOOLS", "PLUMBLINE_SITE", None]
)
def test_a_job_of_gitlab_keeps_no_folder_in_its_checkout(tmp_path: Path, missing: str | None):
    """The runner removes what git ignores, before each job."""
    *tests, setup = yaml.safe_load((ROOT / "ci" / "gitlab-ci.yml").read_text())[".plumbline"][
        "before_script"
    ]
    assert setup == "make setup"
    names = {"PLUMBLINE_RESULTS", "PLUMBLINE_TOOLS", "PLUMBLINE_SITE"} - {missing}
    env = {"PATH": os.environ["PATH"], **dict.fromkeys(names, str(tmp_path))}
    done = subprocess.run(
        ["bash", "-c", "\n".join(tests)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == (2 if missing else 0)
    assert re.findall(r"PLUMBLINE_\w+", done.stdout) == ([missing] if missing else [])


def test_the_pipeline_of_gitlab():
    pipeline = yaml.safe_load((ROOT / "ci" / "gitlab-ci.yml").read_text())
    for name, script in (("nightly", "ci/nightly"), ("post-maintenance", "ci/post-maintenance")):
        job = pipeline[name]
        assert any(script in line for line in job["script"])
        assert job["artifacts"]["when"] == "always"
        (junit,) = job["artifacts"]["reports"].values()
        out = re.search(r"--out[= ](\S+)", " ".join(job["script"]))[1]
        assert junit == f"{out}/{name}.xml"
        # What was asked for is not cut off by the runner first.
        assert job["rules"]


@pytest.mark.parametrize(
    ("nightly", "sent"),
    [
        ("exit 0", None),
        ("sleep 0.1; echo new >page/nightly.md; exit 1", "new\n"),
        ("echo refused >&2; exit 2", "refused\n"),
    ],
)
def test_the_mail_has_no_page_of_an_earlier_night(tmp_path: Path, nightly: str, sent: str | None):
    """The script of docs/monitoring.md, with a nightly that writes a page, or does not."""
    page = (ROOT / "docs" / "monitoring.md").read_text()
    (script,) = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    for name, text in (("ci/nightly", nightly), ("bin/mail", "cat >sent")):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    page = tmp_path / "page" / "nightly.md"
    page.parent.mkdir()
    page.write_text("of yesterday\n")
    os.utime(page, (1, 1))
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, check=True)
    found = tmp_path / "sent"
    assert (found.read_text() if found.exists() else None) == sent
