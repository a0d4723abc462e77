"""The whole run of a night, and the look after a maintenance: exit code, page and findings."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import junitparser
import pytest
from conftest import ROOT, Done, Testbed
from examples import prints_alike, shown
from nightly_pages import outcome_of, page_of
from plumbline.operate import nightly
from records import records_of
from test_export import samples
from test_waivers import FAR, FIO, NEAR, refer

#: A night without the inventory's rules, of one quick case.
NIGHT = ["nightly", "--no-strict", "--mode=smoke", *FIO]


def junit_of(done: Done, name: str = "nightly") -> dict[str, list]:
    """Suite -> its test cases."""
    path = done.sessions[-1] / f"{name}.xml"
    return {suite.name: list(suite) for suite in junitparser.JUnitXml.fromfile(str(path))}


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
    """A figure that is too low."""
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
    suites = {s.name: s for s in junitparser.JUnitXml.fromfile(str(out / "nightly.xml"))}
    assert suites["nightly"].failures == 1
    suite = suites[f"plumbline testbed {done.session.name}"]
    assert (suite.failures, suite.errors) == (1, 0)
    metrics = samples((out / "nightly.prom").read_text())
    for name in ("plumbline_nightly_exit_code", "plumbline_session_exit_code"):
        assert metrics[name] == [({"system": "testbed"}, 1)]
    found = {labels["state"]: value for labels, value in metrics["plumbline_nightly_findings"]}
    assert found == {"new": 0, "known": 0, "waived": 0}
    assert metrics["plumbline_nightly_timestamp_seconds"][0][1] > done.session.stat().st_ctime - 60


def test_a_first_night_without_an_inventory(testbed: Testbed):
    """Nothing is faulty, but what vanished cannot be known. The page has the command."""
    testbed.environment("disk", "fio")
    refer(testbed, NEAR)
    out = testbed.folder / "out"
    out.mkdir()
    (out / "nightly.md").write_text("# testbed: OK\n")
    (out / "yesterday.md").hardlink_to(out / "nightly.md")
    done = testbed.plumbline("nightly", "--mode=smoke", *FIO, "--out", out)
    assert done.code == 2, done.output
    end = json.loads((done.session / "end.json").read_text())
    assert (end["code"], end["faults"]) == (2, [])
    page = (out / "nightly.md").read_text()
    assert page.startswith("# testbed: inconclusive\n")
    notes = page.partition("**Notes**")[2]
    assert "inventory/testbed.json" in notes and "plumbline lint --system testbed" in notes
    suites = {s.name: s for s in junitparser.JUnitXml.fromfile(str(out / "nightly.xml"))}
    suite = suites[f"plumbline testbed {done.session.name}"]
    assert (suite.failures, suite.errors) == (0, len(end["notes"]))
    # The page was replaced as a whole.
    assert (out / "yesterday.md").read_text() == "# testbed: OK\n"


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


def test_a_maintenance_without_a_night_before(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.plumbline(*NIGHT, "--after-maintenance", "--sessions=1")
    assert done.code == 2, done.output
    page = page_of(done, "post-maintenance")
    assert re.match(r"# testbed, after maintenance 20\d\d-\d\d-\d\d: not enough data\n", page)
    assert re.search(r"\| before and after \| 2 \|", page)
    assert re.search(r"\| slow nodes \| 0 \| .?not screened", page), page
