"""The parts of a night, in this process: session, trend, screening, report and comparison."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import junitparser
import pytest
from conftest import Testbed
from histories import fom, line, store
from nightly_pages import outcome_of
from plumbline.core.errors import Fault
from plumbline.operate import nightly


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
        monkeypatch.setattr(nightly.parts.series_changes.Listing, "unjudged", words)
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
        code, (line,) = nightly._run_session(OPTIONS, "s", 0.0, 0, stop)
    assert code == 2 and "stopped" in line
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
        (nightly.parts.series_changes, "of_history"),
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


def test_a_duet_is_no_session_before_or_after_a_maintenance(results: Path):
    after = {"run": "maintenance", "maintenance": "m"}
    duet = {"duet-a": "gnu", "duet-b": "other"}
    extras = [{}] * 4 + [duet] + [after] * 3 + [duet | after]
    names = [_night(results, day, 1.0, extras=of) for day, of in enumerate(extras)]
    options = SimpleNamespace(maintenance="m", nights=10, allow_inconclusive=0, mode="smoke")
    part = nightly.parts.comparison(options, "alpha")
    assert part.command == f"plumbline compare {','.join(names[:4])} {','.join(names[5:8])}"
    assert part.done and "3 sessions after against 4 before" in part.message
