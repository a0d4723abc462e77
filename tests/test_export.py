"""`plumbline export`: what other programs read of a session, in which nothing passes silently."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from xml.etree import ElementTree

import junitparser
import pytest
from conftest import Done, Testbed
from markdown_it import MarkdownIt
from plumbline.core.text import printable
from plumbline.output import export as sessions
from plumbline.site.inventory import Inventory
from prometheus_client.parser import text_string_to_metric_families
from test_baseline import figure, remember
from test_waivers import FAR, FIO, refer, waive, waiver

HOSTILE = 'a"b\\c\n<script>alert(1)</script> [x](http://evil.example) `c` @all | $(rm) \x1b[31m\x00'


@pytest.fixture
def every_end(testbed: Testbed) -> Testbed:
    """One session with one case of every end."""

    def case(name: str, **fields: object) -> None:
        about = {"check": name, "case": f"{name} @testbed:node+disk-io"}
        remember(testbed, 1, None, **{"reason": f"why {name}", **about, **fields})

    asserted = {"verdict": "pass", "lower": 95.0, "reference": "row", "statistic": "median"}
    case("passes", foms=[figure(100.0, **asserted)], reason=None)
    notice = {"state": "warnings", "code": "nvidia-xid", "figure": "", "detail": "Xid 48",
              "source": ""}  # fmt: skip
    case("near", foms=[figure(96.0, **{**asserted, "near_bound": True})], reason=None,
         warnings=[notice])  # fmt: skip
    case("unasserted", foms=[figure(100.0)], reason=None)
    bad = figure(90.0, **{**asserted, "verdict": "fail"})
    case("fails", foms=[bad, figure(9e9, size=8, verdict="above-ceiling", ceiling=1e6)],
         result="fail")  # fmt: skip
    case("waives", foms=[figure(90.0, **{**asserted, "verdict": "waived", "waiver": "w1"})],
         result="waived", waiver="w1")  # fmt: skip
    for result in ("invalid", "error", "skip", "aborted", "unfinished"):
        case(result, result=result)
    case(HOSTILE, result="error", reason=HOSTILE)
    folder = testbed.results / "sessions" / "20261101T000000Z-000001"
    plan = json.loads((folder / "plan.json").read_text())
    cases = [json.loads(line)["case"] for line in (folder / "records.jsonl").open()]
    (known,) = plan["cases"].values()
    plan["cases"] = dict.fromkeys(cases, known) | {
        "lost @testbed:node+disk-io": known | {"check": "lost"}
    }
    plan["extras"] = {"maintenance": "2026-11"}
    (folder / "plan.json").write_text(json.dumps(plan))
    return testbed


def exported(testbed: Testbed, form: str, *more: object) -> str:
    done = export(testbed, f"--format={form}", *more)
    assert done.code == 0, done.output
    return done.out


def export(testbed: Testbed, *options: object) -> Done:
    return testbed.asked("export", *options)


def samples(text: str) -> dict[str, list]:
    found: dict[str, list] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_prometheus(every_end: Testbed) -> None:
    found = samples(exported(every_end, "prometheus"))
    values = {labels["check"]: value for labels, value in found["plumbline_fom"]
              if not labels["size"]}  # fmt: skip
    assert values == {"passes": 100, "near": 96, "unasserted": 100, "fails": 90, "waives": 90}
    (labels,) = [labels for labels, _ in found["plumbline_fom"] if labels["size"]]
    assert labels == {
        "system": "testbed", "partition": "node", "environment": "disk-io", "check": "fails",
        "metric": "write_bandwidth", "size": "8", "location": "", "placement": "all-cores",
        "unit": "MB/s",
    }  # fmt: skip
    verdicts = {labels["check"]: labels["verdict"] for labels, value in
                found["plumbline_fom_verdict"] if not labels["size"]}  # fmt: skip
    assert verdicts == {"passes": "pass", "near": "pass", "unasserted": "not-asserted",
                        "fails": "fail", "waives": "waived"}  # fmt: skip
    assert [labels["check"] for labels, _ in found["plumbline_fom_near_bound"]] == ["near"]
    notices = [(labels["check"], labels["state"], labels["code"], value)
               for labels, value in found["plumbline_case_warnings"]]  # fmt: skip
    assert notices == [("near", "warnings", "nvidia-xid", 1)]
    bounds = {labels["check"]: (labels["side"], value) for labels, value in
              found["plumbline_fom_bound"]}  # fmt: skip
    assert set(bounds) == {"passes", "near", "fails", "waives"}
    assert set(bounds.values()) == {("lower", 95)}
    results = {labels["check"]: labels["result"] for labels, _ in found["plumbline_case_result"]}
    assert len(results) == 12
    assert (results["lost"], results["waives"]) == ("unfinished", "waived")
    counts = {labels["result"]: value for labels, value in found["plumbline_session_cases"]}
    assert counts == {"pass": 3, "fail": 1, "waived": 1, "invalid": 1, "error": 2, "skip": 1,
                      "aborted": 1, "unfinished": 2}  # fmt: skip
    assert found["plumbline_session_exit_code"] == [({"system": "testbed"}, 1)]
    # 2026-11-01T00:00:10Z.
    assert found["plumbline_session_timestamp_seconds"] == [({"system": "testbed"}, 1793491210)]
    # A hostile name is one label, whole, and without a control character.
    (name,) = [name for name in results if "script" in name]
    assert name.startswith('a"b\\c\\n<script>') and name.isprintable()


def test_prometheus_file_is_written_whole(every_end: Testbed) -> None:
    path = every_end.folder / "plumbline.prom"
    path.write_text("old\n")
    before = path.stat().st_ino
    umask = os.umask(0o027)
    assert exported(every_end, "prometheus", "-o", path) == ""
    os.umask(umask)
    # node_exporter runs as another user.
    assert path.stat().st_ino != before and stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text() == exported(every_end, "prometheus")
    assert [found.name for found in every_end.folder.glob("*.prom*")] == ["plumbline.prom"]
    done = export(every_end, "-o", every_end.folder / "no" / "a.prom")
    assert (done.code, done.codes) == (2, ["files.not-writable"])


def test_junit_passes_nothing_that_was_not_asserted(every_end: Testbed) -> None:
    path = every_end.folder / "junit.xml"
    exported(every_end, "junit", "-o", path)
    (suite,) = ElementTree.parse(path).getroot()
    assert {p.get("name"): p.get("value") for p in suite.iter("property")} == {
        "maintenance": "2026-11"
    }
    ends = {}
    for case in suite.iter("testcase"):
        kinds = [child.tag for child in case if child.tag != "system-out"]
        assert len(kinds) <= 1
        ends[case.get("name")] = kinds[0] if kinds else "passed"
        if kinds:
            (message,) = (child.get("message") for child in case if child.tag == kinds[0])
            assert message
    (hostile,) = [name for name in ends if "script" in name]
    assert ends.pop(hostile) == "error"
    assert ends == {
        "passes": "passed", "near": "passed", "unasserted": "skipped", "fails": "failure",
        "waives": "skipped", "invalid": "error", "error": "error", "skip": "skipped",
        "aborted": "error", "unfinished": "error", "lost": "error",
    }  # fmt: skip
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) \
        == ("12", "1", "6", "3")  # fmt: skip
    (waived,) = [case for case in suite.iter("testcase") if case.get("name") == "waives"]
    assert waived.find("skipped").get("message") == "waived: why waives"
    texts = {case.get("name"): case.findtext("system-out") for case in suite.iter("testcase")}
    assert texts["near"].splitlines() == [
        "write_bandwidth = 96 MB/s: pass, near its bound of [95, open] by row",
        "warnings: Xid 48 [nvidia-xid]",
    ]


def test_markdown_shows_what_is_red_first(every_end: Testbed) -> None:
    text = exported(every_end, "markdown")
    lines = text.splitlines()
    assert lines[0] == "### testbed: faults found"
    assert "- session 20261101T000000Z-000001, maintenance=2026-11" in lines
    assert "- 12 test cases: 3 pass, 1 fail, 1 waived, 1 invalid, 2 error, 1 skip, 1 aborted, " \
        "2 unfinished" in lines  # fmt: skip
    assert "2 pass, 1 fail, 1 above-ceiling, 1 waived, 1 not-asserted (1 near" in text
    titles = [line.strip("*") for line in lines if line.startswith("**")]
    assert titles == ["Failed", "Above a ceiling", "Invalid", "Error", "Aborted", "Unfinished",
                      "Waived", "Near a bound", "Warnings", "Measured, but nothing asserted",
                      "Skipped"]  # fmt: skip
    at = {title: lines[lines.index(f"**{title}**") + 2] for title in titles}
    failed = "- `fails @node+disk-io` on n1: write_bandwidth = 90 MB/s, expected at least 95 by row"
    assert at["Failed"] == failed
    assert at["Above a ceiling"].endswith("expected at most 1e+06 by its ceiling")
    assert at["Warnings"] == "- `near @node+disk-io` on n1: warnings: Xid 48"
    assert at["Waived"] == "- `waives @node+disk-io`: why waives"


@pytest.mark.holds("pages")
def test_markdown_names_what_failed_without_a_figure_beyond_its_bounds(testbed: Testbed) -> None:
    """Such as a plain check that has to have a reference, and has none."""
    about = {"result": "fail", "reason": "no reference of x"}
    session = remember(testbed, 1, None, foms=[figure(100.0)], **about)
    assert "no reference of x" in exported(testbed, "markdown", session)


def test_hostile_text_has_no_meaning_in_markdown(every_end: Testbed) -> None:
    text = exported(every_end, "markdown")
    assert all(line.isprintable() for line in text.splitlines())
    inline = [token for block in MarkdownIt().parse(text) for token in block.children or ()]
    assert {token.type for token in inline} == {
        "text", "code_inline", "strong_open", "strong_close",
    }  # fmt: skip
    hostile = [token for token in inline if "script" in token.content]
    assert hostile and {token.type for token in hostile} == {"code_inline"}
    # What is not quoted mentions nobody, and links to nothing.
    plain = "".join(token.content for token in inline if token.type == "text")
    assert not re.search(r"[@#<>`|]|://", plain)


@pytest.mark.holds("pages")
def test_markdown_is_readable_as_text(every_end: Testbed) -> None:
    """Names are as they are, without references to characters."""
    text = exported(every_end, "markdown")
    assert not re.search(r"&#?\w+;", text)


@pytest.mark.holds("pages")
def test_a_hostile_name_of_a_system_in_junit() -> None:
    """Its plan has it, which may be another's."""
    named = sessions.ExportedSession("s", HOSTILE, {HOSTILE: HOSTILE}, [], [HOSTILE])
    (suite,) = junitparser.JUnitXml.fromstring(sessions.junit(named).encode())
    assert suite.name == f"plumbline {printable(HOSTILE)} s"
    assert [case.name for case in suite] == [printable(HOSTILE)]


# -- which session, and how it ended -------------------------------------------------------------


def test_the_newest_or_the_named_session(every_end: Testbed) -> None:
    second = remember(every_end, 2, 100.0)
    third = remember(every_end, 3, 100.0, system="other")
    assert f"session {third}" in exported(every_end, "markdown")
    assert f"session {third}" in exported(every_end, "markdown", "--last")
    assert f"session {second}" in exported(every_end, "markdown", "--system=testbed")
    first = "20261101T000000Z-000001"
    assert f"session {first}" in exported(every_end, "markdown", first)
    for wrong, code in (
        (["nosuch"], "history.unknown-session"),
        ([first, "--last"], "input.wrong-option"),
        (["--system=nosuch"], "history.nothing-selected"),
    ):
        done = export(every_end, "--format=junit", *wrong)
        assert (done.code, done.out, done.codes) == (2, "", [code])


def cut_off(testbed: Testbed, session: str) -> None:
    """Takes the end of a session away, and the record of its last case."""
    folder = testbed.results / "sessions" / session
    (folder / "end.json").unlink()
    records = folder / "records.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[:-1]))


def test_a_session_that_has_not_ended_is_not_the_newest(testbed: Testbed) -> None:
    first, second, third = [remember(testbed, number, 100.0) for number in (1, 2, 3)]
    for session in (second, third):
        cut_off(testbed, session)
    done = export(testbed)
    assert done.code == 0 and f"session {first}" in done.out
    lines = done.err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [third, second]
    # By its name it is exported as it is.
    assert f"session {second}" in exported(testbed, "markdown", second)
    cut_off(testbed, first)
    done = export(testbed)
    assert (done.code, done.out, done.codes[-1]) == (2, "", "history.not-ended")


def test_a_session_of_the_future_is_not_the_newest(testbed: Testbed) -> None:
    first, second, third = [remember(testbed, number, 100.0) for number in (1, 2, 3)]
    for session in (second, third):
        path = testbed.results / "sessions" / session / "records.jsonl"
        path.write_text(path.read_text().replace('"time":"2026-', '"time":"9026-'))
    done = export(testbed)
    assert done.code == 0 and f"session {first}" in done.out
    assert [line.split(": ")[1] for line in done.err.splitlines()] == [third, second]
    assert f"session {second}" in exported(testbed, "markdown", second)
    # If all are, the clock of this host is wrong.
    done = export(testbed, "--since=2030-01-01")
    assert (done.code, done.err) == (0, "") and f"session {third}" in done.out


def test_the_newest_of_those_that_are_chosen(testbed: Testbed) -> None:
    first, second = [remember(testbed, number, 100.0) for number in (1, 2)]
    assert f"session {first}" in exported(testbed, "markdown", "--until=2026-11-01")
    assert f"session {second}" in exported(testbed, "markdown", "--since=2026-11-01")
    path = testbed.results / "sessions" / first / "plan.json"
    plan = json.loads(path.read_text())
    path.write_text(json.dumps(plan | {"extras": {"maintenance": "one"}}))
    assert f"session {first}" in exported(testbed, "markdown", "--extras", "maintenance=one")
    assert export(testbed, first, "--until=2026-11-01").code == 2


def test_without_a_format_the_files_ending_says_it(every_end: Testbed) -> None:
    assert export(every_end).out == exported(every_end, "markdown")
    for name, form in (("a.prom", "prometheus"), ("a.xml", "junit"), ("a.md", "markdown")):
        path = every_end.folder / name
        assert export(every_end, "-o", path).code == 0
        assert path.read_text().strip() == exported(every_end, form).strip()
    path = every_end.folder / "a.txt"
    done = export(every_end, "-o", path)
    assert (done.code, done.codes) == (2, ["input.wrong-option"]) and not path.exists()


def test_a_pass_that_asserted_nothing(testbed: Testbed) -> None:
    remember(testbed, 1, 100.0, foms=[figure(1.0, verdict="not-asserted")])
    assert exported(testbed, "markdown").splitlines()[0] != "### testbed: OK"
    remember(testbed, 2, 100.0, foms=[figure(1.0, verdict="pass", lower=0.5)])
    assert exported(testbed, "markdown").splitlines()[0] == "### testbed: OK"


def test_no_session_and_a_damaged_one(testbed: Testbed) -> None:
    done = export(testbed, "--format=markdown")
    assert (done.code, done.codes) == (2, ["history.empty"])
    session = remember(testbed, 1, 100.0, foms=[figure(1.0, verdict="pass", lower=0.5)])
    assert exported(testbed, "markdown").startswith("### testbed: OK")
    folder = testbed.results / "sessions" / session
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"half": ')
    done = export(testbed, "--format=markdown")
    assert done.out.startswith("### testbed: inconclusive")
    assert "records.jsonl:2" in done.out and "records.jsonl:2" in done.err
    assert samples(exported(testbed, "prometheus"))["plumbline_session_exit_code"][0][1] == 2
    (folder / "plan.json").write_text("{")
    done = export(testbed, session)
    assert (done.code, done.codes[-1]) == (2, "history.damaged") and "plan.json" in done.err


def test_the_first_verdict_counts(testbed: Testbed) -> None:
    remember(testbed, 1, None, result="invalid", reason="garbled")
    remember(testbed, 1, None, attempt=1, foms=[figure(1.0, verdict="pass", lower=0.5)])
    found = samples(exported(testbed, "prometheus"))
    assert [labels["result"] for labels, _ in found["plumbline_case_result"]] == ["invalid"]


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (2, 2), (0, 0)])
def test_a_session_is_no_better_than_its_exit_code(
    testbed: Testbed, code: int, expected: int
) -> None:
    """Such as one whose cases failed when they were repeated (--reruns)."""
    name = remember(testbed, 1, 100.0, foms=[figure(1.0, verdict="pass", lower=0.5)])
    end = {"code": code, "notes": [], "faults": []}
    (testbed.results / "sessions" / name / "end.json").write_text(json.dumps(end))
    found = samples(exported(testbed, "prometheus"))
    assert found["plumbline_session_exit_code"][0][1] == expected


def test_values_are_exact(testbed: Testbed) -> None:
    remember(testbed, 1, math.pi, seconds={"total": math.e, "samples": []})
    times = [node.get("time") for node in ElementTree.fromstring(exported(testbed, "junit")).iter()]
    assert [float(time) for time in times if time] == [math.e] * 3
    ((_, value),) = samples(exported(testbed, "prometheus"))["plumbline_fom"]
    assert value == math.pi


def test_sessions_as_they_ran(testbed: Testbed) -> None:
    """One that failed, and lacks a case of the inventory: no record has that fault. And one
    that was waived."""
    testbed.environment("disk", "fio")
    refer(testbed, FAR)
    path = testbed.systems / "inventory" / "testbed.json"
    path.parent.mkdir()
    path.write_text(Inventory(cases={"gone @testbed:node+disk-io": {}}).text())
    failed = testbed.plumbline("run", *FIO)
    assert failed.code == 1
    end = json.loads((failed.session / "end.json").read_text())
    assert end["code"] == 1
    (vanished,) = [fault for fault in end["faults"] if "gone @" in fault]
    text = exported(testbed, "markdown")
    assert text.startswith("### testbed: faults found")
    assert "**Failed**" in text and "gone @testbed" in text
    assert "gone @" in vanished and "gone @" in exported(testbed, "junit")
    assert samples(exported(testbed, "prometheus"))["plumbline_session_exit_code"][0][1] == 1
    path.unlink()
    waive(testbed, waiver(check="fio"))
    assert testbed.plumbline("run", *FIO).code == 0
    text = exported(testbed, "markdown")
    assert text.startswith("### testbed: OK")
    assert "1 waived" in text and "storage team" in text
    assert 'skipped message="waived: ' in exported(testbed, "junit")
