"""What is acknowledged: it leaves what is red at once, and comes back when its waiver ends or it
gets worse."""

from __future__ import annotations

import csv
import datetime
import html
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import Done, asked
from fleet import Fleet
from plumbline.analysis import causes
from plumbline.analysis.screen import Flag
from plumbline.core import paths
from plumbline.operate.nightly import parts
from plumbline.output.report import triage
from plumbline.reference import lookup, waivers
from report_states import a_baseline, a_change, count, state
from reports import (  # noqa: F401 - fixtures
    SLOW,
    a_series,
    demo_,
    notes,
    one,
    pages_,
    report_page,
    sessions_of,
    shown,
    write,
)
from screened import remember

GIVEN = ["--owner", "storage team", "--until", "30d", "--reason", "a disk is slow"]
NAME = "alder-babelstream-triad-all-cores"


def day(offset: int) -> datetime.date:
    return waivers.today() + datetime.timedelta(days=offset)


def waive(folder: Path, *arguments: object) -> Done:
    return asked("waive", *arguments, PLUMBLINE_SITE=folder, PLUMBLINE_RESULTS=folder)


def listed(folder: Path, *arguments: object) -> list[dict]:
    """What can be acknowledged."""
    return json.loads(waive(folder, "--format=json", *arguments).out)


def waived_until(folder: Path, expires: datetime.date, **match: object) -> None:
    content = {"id": "known", "reason": "a disk is slow", "owner": "storage team",
               "expires": expires, "match": {"system": "alder", **match}}  # fmt: skip
    path = folder / "reference" / "waivers.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump([content]))


def red(folder: Path) -> tuple[int, int]:
    """How many rows of the start page are red, and how many are waived."""
    page = report_page(folder, now=None)
    return count(shown(page, "red")), count(shown(page, "waived"))


@pytest.fixture(name="slow")
def slow_(tmp_path: Path) -> Path:
    """A history in which one figure is below its bound: it lost 31 % of its reference."""
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}, {"check": "well"}])
    a_baseline(folder, {"id": NAME})
    return folder


# -- red test cases ------------------------------------------------------------------------------


def test_what_is_acknowledged_is_red_no_longer(slow):
    (found,) = listed(slow)
    assert (found["kind"], found["figures"], found["since"]) == ("fail", ["triad"], "2025-11-20")
    assert found["loss"] == pytest.approx(1 - 200 / 290)
    assert red(slow) == (1, 0)
    done = waive(slow, found["finding"], *GIVEN, "--ticket", "4711")
    assert done.code == 0
    (one,) = waivers.load(slow / "reference")
    assert (one.id, one.owner, one.expires, one.reason, one.ticket) == (
        found["finding"], "storage team", day(30), "a disk is slow", "4711",
    )  # fmt: skip
    assert one.match == waivers.Match(
        system="alder", partition="cpu", environment="gnu-mpich", check="stream", metric="triad",
        placement="all-cores", results=["fail", "regression"], max_loss="34 %",
    )  # fmt: skip
    assert red(slow) == (0, 1)
    assert listed(slow) == []
    section = shown(slow / "out" / "index.html", "waived")
    for value in ("storage team", "a disk is slow", "4711", one.id, f"expires {one.expires}"):
        assert value in section


@pytest.mark.parametrize(
    ("expires", "match", "expected"),
    [
        (0, {}, (0, 1)),
        (0, {"max_loss": "32 %"}, (0, 1)),
        (-1, {}, (1, 0)),
        (0, {"max_loss": "30 %"}, (1, 0)),
        (0, {"metric": "copy"}, (1, 0)),
        (0, {"results": ["invalid"]}, (1, 0)),
    ],
)
def test_it_is_red_again_when_its_waiver_ends_or_it_gets_worse(slow, expires, match, expected):
    waived_until(slow, day(expires), **match)
    assert red(slow) == expected


def recorded_as_waived(folder: Path, **changes: object) -> Path:
    """A history of one test case that the waiver ``known`` covered."""
    sessions_of(folder, [{"figures": [SLOW | {"waived": True}], **changes}])
    for path in folder.glob("sessions/*/records.jsonl"):
        path.write_text(path.read_text().replace("ost-rebuild", "known"))
    return folder


@pytest.mark.parametrize(
    ("expires", "expected"), [(0, (0, 1)), (-1, (1, 0)), (None, (1, 0))]
)  # fmt: skip
@pytest.mark.parametrize(
    "changes", [{}, {"figures": [], "result": "waived", "waiver": "known"}]
)  # fmt: skip
def test_what_a_night_recorded_as_waived_is_red_when_that_has_ended(
    tmp_path, changes, expires, expected
):
    """Or when the waiver was removed."""
    folder = recorded_as_waived(tmp_path, **changes)
    if expires is not None:
        waived_until(folder, day(expires), results=["invalid"] if changes else ["fail"])
    assert red(folder) == expected
    assert len(listed(folder)) == expected[0]


@pytest.mark.parametrize(("offset", "expected"), [(0, (0, 1)), (-1, (1, 0))])
def test_a_loss_that_only_the_night_knew_stays_waived(tmp_path, offset, expected):
    """That of a plain check, whose reference is in no table."""
    folder = recorded_as_waived(tmp_path)
    waived_until(folder, day(offset), max_loss="20 %")
    assert red(folder) == expected


def test_one_figure_that_is_not_waived_keeps_its_case_red(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW, SLOW | {"metric": "copy"}]}])
    waived_until(folder, day(3), metric="copy")
    assert red(folder) == (1, 1)  # The case is red, and has a waived figure.


@pytest.mark.parametrize("values", [(150.0, 200.0), (200.0, 150.0)])
def test_a_repeat_that_is_waived_hides_none_that_is_not(tmp_path, values):
    repeats = [{"check": f"stream %.repeat_no={n}", "figures": [SLOW | {"value": value}]}
               for n, value in enumerate(values)]  # fmt: skip
    folder = sessions_of(tmp_path, repeats)
    a_baseline(folder, {"id": NAME})
    waived_until(folder, day(3), max_loss="32 %")
    assert red(folder) == (1, 1)  # The case is red, and has a waived figure.
    (found,) = listed(folder)
    assert found["figures"] == ["triad"] and found["loss"] == pytest.approx(1 - 150 / 290)
    page = one(folder / "out", "checks/alder-stream*.html").read_text()
    assert {*re.findall(r"\bs-(fail|waived)\b", page)} == {"fail"}
    waived_until(folder, day(3))
    assert red(folder) == (0, 1) and listed(folder) == []


def test_what_is_above_its_ceiling_cannot_be_acknowledged(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW | {"ceiling": 100.0}]}])
    waived_until(folder, day(3))
    assert red(folder) == (1, 0)
    assert listed(folder) == []
    write(folder, folder / "out")
    for page in ("index.html", "checks/*.html"):
        assert "cannot-acknowledge" in notes(one(folder / "out", page))


def test_what_is_red_can_be_acknowledged_or_the_page_says_that_it_cannot(pages):
    section = re.search(r'aria-labelledby="red">.*?</section>', (pages / "index.html").read_text(),
                        re.S)[0]  # fmt: skip
    rows = section.split('<li class="row"')[1:]
    assert {('class="waive"' in row) + row.count("cannot-acknowledge") for row in rows} == {1}
    assert {"cannot-acknowledge" in row for row in rows} == {True, False}


def test_a_test_case_without_figures_is_acknowledged_by_its_result(tmp_path):
    lost = {"result": "error", "reason": "TIMEOUT", "figures": [], "nodes": ["n1", "n2"]}
    folder = sessions_of(tmp_path, [lost, {"check": "well"}])
    (found,) = listed(folder)
    assert (found["kind"], found["loss"], found["figures"]) == ("error", None, [])
    assert waive(folder, found["finding"], *GIVEN).code == 0
    (one,) = waivers.load(folder / "reference")
    assert (one.match.results, one.match.max_loss, one.match.node) == (("error",), None, "")
    assert red(folder) == (0, 1)


def test_a_loss_of_an_unknown_reference_has_no_limit(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    (found,) = listed(folder)
    assert waive(folder, found["finding"], *GIVEN).code == 0
    (one,) = waivers.load(folder / "reference")
    assert one.match.max_loss is None and red(folder) == (0, 1)
    waived_until(folder, day(3), max_loss="90 %")
    assert red(folder) == (1, 0)  # Whether it exceeds a limit is not known.


def test_the_nodes_of_a_check_have_a_waiver_each(tmp_path):
    nodes = [
        {"check": f"stream %.nid=n{n}", "nodes": [f"n{n}"], "figures": [SLOW]} for n in range(3)
    ]
    folder = sessions_of(tmp_path, nodes)
    a_baseline(folder, {"id": NAME})
    found = [one["finding"] for one in listed(folder)]
    assert len(found) == 3 and waive(folder, *found[:2], *GIVEN).code == 0
    assert [one.match.node for one in waivers.load(folder / "reference")] == ["n0", "n1"]
    assert [case.node for case in state(folder).red] == ["n0", "n1", "n2"]  # As recorded.
    assert [one["finding"] for one in listed(folder)] == found[2:]


def test_the_nodes_of_a_sweep_have_a_waiver_each(tmp_path):
    sessions = [[{"nodes": [n], "extras": {"sweep": "w", "node": n}, "figures": [SLOW]}]
                for n in ("n1", "n2")]  # fmt: skip
    folder = sessions_of(tmp_path, *sessions)
    a_baseline(folder, {"id": NAME})
    found = [one["finding"] for one in listed(folder)]
    assert len({*found}) == 2 and waive(folder, found[0], *GIVEN).code == 0
    (known,) = waivers.load(folder / "reference")
    assert known.match.node in ("n1", "n2")
    assert [one["finding"] for one in listed(folder)] == found[1:]


def test_each_waiver_and_each_reason_has_a_row(tmp_path):
    """Of nodes that otherwise are one."""
    checks = [{"check": f"stream %.nid=n{n}", "nodes": [f"n{n}"]} for n in range(4)]
    reasons = ["no output", "no output", "wrong CPUs", "wrong CPUs"]
    folder = sessions_of(tmp_path, [
        *(check | {"figures": [SLOW]} for check in checks),
        *(check | {"check": check["check"].replace("stream", "lost"), "result": "invalid",
                   "reason": reason, "figures": []}
          for check, reason in zip(checks, reasons, strict=True)),
    ])  # fmt: skip
    a_baseline(folder, {"id": NAME})
    found = [one["finding"] for one in listed(folder) if one["kind"] == "fail"]
    for n, finding in enumerate(found[:2]):
        given = ["--owner", f"team {n}", "--until", f"{n + 1}d", "--reason", f"disk {n}"]
        assert waive(folder, finding, *given).code == 0
    assert red(folder) == (6, 2)
    section = shown(folder / "out" / "index.html", "waived")
    assert all(f"{word} {n}" in section for word in ("team", "disk") for n in range(2))
    red_now = shown(folder / "out" / "index.html", "red")
    assert [red_now.count(reason) for reason in ("no output", "wrong CPUs")] == [1, 1]


def test_the_page_prints_the_waiver_and_the_command(slow):
    (found,) = listed(slow)
    start = report_page(slow, now=None)
    for page in (start, *slow.glob("out/checks/alder-stream*.html")):
        content = page.read_text()
        (command,) = re.findall(r"<code>(plumbline waive [^<]+)</code>", content)
        assert shlex.split(html.unescape(command))[2] == found["finding"]
        (text,) = re.findall(r"<pre>(.*?)</pre>", content, re.S)
        (entry,) = yaml.safe_load(html.unescape(text))
        assert [entry[name] for name in ("owner", "reason", "ticket")] == ["", "", ""]
        assert entry["expires"] == day(30)
        assert waive(slow, found["finding"], *GIVEN).code == 0
        (one,) = yaml.safe_load((slow / "reference" / "waivers.yaml").read_text())
        assert one["match"] == entry["match"]
        (slow / "reference" / "waivers.yaml").unlink()


def test_a_waiver_that_is_exceeded_or_has_ended_is_followed_by_another(slow):
    (found,) = listed(slow)
    name = found["finding"]
    assert waive(slow, name, *GIVEN).code == 0
    path = slow / "reference" / "waivers.yaml"
    path.write_text(path.read_text().replace("34 %", "20 %"))
    (again,) = listed(slow)
    assert again["finding"] == f"{name}-2" and name in again["earlier"]
    assert "up to 20%" in again["earlier"]
    content = report_page(slow, now=None).read_text()
    assert 'data-note="waived-before"' in content and f"plumbline waive {name}-2 " in content
    assert waive(slow, f"{name}-2", *GIVEN).code == 0
    assert [one.id for one in waivers.load(slow / "reference")] == [name, f"{name}-2"]
    assert listed(slow) == []
    path.write_text(path.read_text().replace(day(30).isoformat(), "2026-01-02"))
    (last,) = listed(slow)
    assert last["finding"] == f"{name}-3" and "2026-01-02" in last["earlier"]


def test_what_is_waived_is_waived_on_every_page(slow):
    (found,) = listed(slow)
    for verdict in ("fail", "waived"):
        if verdict == "waived":
            assert waive(slow, found["finding"], *GIVEN).code == 0
        report_page(slow, now=None)
        for page in (
            *slow.glob("out/checks/alder-stream*.html"),
            *slow.glob("out/systems/alder*.html"),
        ):
            assert {*re.findall(r"\bs-(fail|waived)\b", page.read_text())} == {verdict}, page


def test_a_finding_that_is_waived_has_its_waiver_as_answer(slow):
    (found,) = listed(slow)
    assert waive(slow, found["finding"], *GIVEN).code == 0
    done = waive(slow, found["finding"], *GIVEN)
    assert (done.code, done.codes) == (2, ["input.unknown-name"])
    assert "until" in done.err and "did you mean" not in done.err


@pytest.mark.parametrize(
    ("check", "placement", "expected"),
    [
        ("stream", "all-cores", "all-cores"),
        ("stream %placement=all-cores", "all-cores", None),
        ("stream %limit=None", "", None),
    ],
)
def test_a_waiver_has_what_its_figures_have_in_common(check, placement, expected):
    subjects = [
        waivers.Subject("alder", "cpu", "gnu", check, placement, (), metric, 8, "gpu0", 0.1)
        for metric in ("copy", "triad")
    ]
    match = triage.OpenFinding("id", "fail", tuple(subjects), "2026-11-20", 0.101).match()
    assert match.get("placement") == expected
    assert "metric" not in match and (match["size"], match["location"]) == (8, "gpu0")
    assert match["max_loss"] == "13 %"


# -- changes -------------------------------------------------------------------------------------

LATENCY = ["--check=osu_p2p %test=latency %placement=on-socket", "--system=alder"]


@pytest.fixture(name="seasons")
def seasons_(demo, tmp_path) -> Path:
    """A made-up history of its own."""
    shutil.copytree(demo, tmp_path / "demo", ignore=shutil.ignore_patterns("out"))
    return tmp_path / "demo"


def trend(folder: Path, *arguments: object) -> Done:
    return asked("trend", "--from", folder, *arguments, PLUMBLINE_SITE=folder)


def test_a_regression_that_is_acknowledged_has_not_changed_today(seasons):
    (found,) = [one for one in listed(seasons, *LATENCY) if one["kind"] == "regression"]
    assert 0.1 < found["loss"] < 0.16 and len(found["figures"]) == 4
    done = trend(seasons, *LATENCY, "--active")
    assert done.code == 1
    changed = count_of(seasons, "changed")
    assert waive(seasons, found["finding"], *GIVEN).code == 0
    assert count_of(seasons, "changed") == changed - 1
    section = shown(seasons / "out" / "index.html", "waived")
    assert found["finding"] in section and "a disk is slow" in section
    # It is the same waiver that covers what failed.
    assert listed(seasons, *LATENCY) == []
    done = trend(seasons, *LATENCY, "--active", "--format=json")
    assert done.code == 0
    assert {one["waiver"] for one in json.loads(done.out)} == {found["finding"]}
    assert "waived" in trend(seasons, *LATENCY, "--active").out


def count_of(folder: Path, section: str) -> int:
    return count(shown(report_page(folder, now=None), section))


def sections(page: Path) -> dict[str, str]:
    """The section of each figure of a check, by anchor."""
    found = re.findall(r'<section class="figure" id="([^"]+)"(.*?)</section>',
                       page.read_text(), re.S)  # fmt: skip
    return {anchor: part for anchor, part in found if not anchor.startswith("curve-")}


def offered(section: str) -> list[str]:
    """The findings that a figure's section offers to acknowledge."""
    commands = re.findall(r"<code>(plumbline waive [^<]+)</code>", section)
    return [name for one in commands for name in shlex.split(html.unescape(one))[2:3]]


def test_a_loss_is_acknowledged_at_the_first_of_its_figures(pages, demo):
    (known,) = [one for one in listed(demo, *LATENCY) if one["kind"] == "regression"]
    parts = sections(one(pages, "checks/alder-osu-p2p-test-latency*.html"))
    lost = [anchor for anchor, part in parts.items() if "s-regression" in part]
    assert len(lost) == len(known["figures"]) == 4
    assert [anchor for anchor, part in parts.items() if offered(part)] == lost[:1]
    assert offered(parts[lost[0]]) == [known["finding"]]
    above = {anchor: re.findall(r'acknowledge-above">.*?href="#([^"]+)"', part)
             for anchor, part in parts.items()}  # fmt: skip
    assert above == {anchor: lost[:1] if anchor in lost[1:] else [] for anchor in parts}


def test_what_is_waived_or_over_is_not_offered(seasons):
    (known,) = [one for one in listed(seasons, *LATENCY) if one["kind"] == "regression"]
    assert waive(seasons, known["finding"], *GIVEN).code == 0
    report_page(seasons, now=None)
    for pattern in (
        "checks/alder-osu-p2p-test-latency*.html",
        "checks/alder-osu-p2p-test-bw*.html",
    ):
        parts = sections(one(seasons / "out", pattern)).values()
        assert any('<ul class="plain changes">' in part for part in parts)
        assert not any(offered(part) or "acknowledge-above" in part for part in parts)


def test_a_figure_of_nodes_offers_those_that_lost(pages, demo):
    found = [one["finding"] for one in listed(demo, "--system=alder", "--check=babelstream_cpu*")
             if one["kind"] not in (*triage.WAIVABLE, "slow")]  # fmt: skip
    parts = sections(one(pages, "checks/alder-babelstream-cpu*.html"))
    assert [name for part in parts.values() for name in offered(part)] == found
    assert found and all("nid0007" in name for name in found)


def test_a_regression_comes_back_when_it_exceeds_its_waiver(seasons):
    for limit, code in (("20 %", 0), ("5 %", 1)):
        waived_until(seasons, day(3), check="osu_p2p", results=["regression"], max_loss=limit)
        assert trend(seasons, *LATENCY, "--active").code == code
    waived_until(seasons, day(-1), check="osu_p2p", results=["regression"])
    assert trend(seasons, *LATENCY, "--active").code == 1
    waived_until(seasons, day(3), check="osu_p2p")  # Of failures alone, as they always were.
    assert trend(seasons, *LATENCY, "--active").code == 1


def test_a_second_loss_counts_with_the_first():
    series = a_series(np.ones(60))
    changes = [
        a_change(series, 40, size=-0.1),
        a_change(series, 20, size=-0.1),
        a_change(series, 30, size=-0.5, active=False),
        a_change(series, 50, size=0.1, worse=False),
    ]
    losses = [(change.start, subject.loss) for change, subject in causes.losses(changes)]
    assert losses == [(20, pytest.approx(0.1)), (40, pytest.approx(0.19))]
    waiver = waivers.Waiver(
        id="known", reason="r", owner="o", expires=day(1),
        match={"system": "alder", "results": ["regression"], "max_loss": "15 %"},
    )  # fmt: skip
    causes.waive(changes, [waiver])
    assert [change.start for change in changes if change.waiver] == [20]


def test_a_regression_that_is_acknowledged_is_no_fault_of_a_night(seasons, monkeypatch):
    monkeypatch.setenv("PLUMBLINE_SITE", str(seasons))
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(seasons))
    last = max(path.name for path in (seasons / "sessions").glob("*"))
    before = parts.trend("alder", last)
    waived_until(seasons, day(3), results=["regression"])
    after = parts.trend("alder", last)
    assert re.search(r"(\d+) new, (\d+) known", before.message).groups() != ("0", "0")
    assert (after.code, re.findall(r"\d+", after.message)[:2]) == (0, ["0", "0"])
    assert "waived: " in after.page and "waived: " not in before.page


# -- what is slow --------------------------------------------------------------------------------


@pytest.fixture(name="fleet")
def fleet_(tmp_path: Path) -> Path:
    """A history in which one of 20 nodes lost 15 % on its seventh night."""
    remember(tmp_path, Fleet(60, nodes=20, nights=8, noise=0.01, slow={("n007",): (6, 0.15)}))
    return tmp_path


def screen(folder: Path, *arguments: object) -> Done:
    return asked("screen", "--from", folder, *arguments, PLUMBLINE_SITE=folder)


def slow_rows(folder: Path) -> tuple[int, int]:
    """How many rows of the start page are slow, and how many are waived."""
    return count_of(folder, "slow"), count(shown(folder / "out" / "index.html", "waived"))


def test_a_slow_node_is_acknowledged_by_its_name_in_screening(fleet):
    (found,) = listed(fleet)
    assert (found["kind"], found["since"], found["figures"]) == ("slow", "2026-11-07", [])
    assert found["loss"] == pytest.approx(0.15, abs=0.02)
    assert (screen(fleet).code, slow_rows(fleet)) == (1, (1, 0))
    assert waive(fleet, "n007", *GIVEN, "--ticket", "4711").code == 0
    (one,) = waivers.load(fleet / "reference")
    assert (one.id, one.owner, one.expires, one.ticket) == (
        found["finding"], "storage team", day(30), "4711",
    )  # fmt: skip
    limit = one.match.max_loss
    assert found["loss"] + 0.02 <= limit < found["loss"] + 0.03
    assert one.match == waivers.Match(
        system="big", node="n007", results=["slow"], max_loss=f"{limit:.0%}"
    )
    assert (listed(fleet), slow_rows(fleet)) == ([], (0, 1))
    assert waive(fleet, "n007", *GIVEN).codes == ["input.unknown-name"]


def test_screening_prints_what_is_acknowledged_and_drains_it_nevertheless(fleet):
    clear = ["clear", "n007", "--no-measure"]
    env = {"PLUMBLINE_SITE": fleet, "PLUMBLINE_RESULTS": fleet}
    assert asked(*clear, **env).code == 1
    assert waive(fleet, "n007", *GIVEN).code == 0
    (one,) = waivers.load(fleet / "reference")
    done = screen(fleet, "--format=json", "--drain", fleet / "drain")
    (flag,) = json.loads(done.out)
    assert (done.code, flag["waiver"], flag["until"], flag["drain"]) == (0, one.id, None, True)
    assert (fleet / "drain").read_text() == "n007\n"
    (row,) = csv.DictReader(io.StringIO(screen(fleet, "--format=csv").out))
    assert (row["name"], row["waiver"]) == ("n007", one.id)
    assert str(one) in " ".join(screen(fleet).out.split())
    assert asked(*clear, **env).code == 1


@pytest.mark.parametrize(
    ("expires", "match", "code"),
    [
        (0, {}, 0),
        (0, {"max_loss": "18 %"}, 0),
        (0, {"node": "n00*", "results": ["fail", "slow"]}, 0),
        (-1, {}, 1),
        (0, {"max_loss": "12 %"}, 1),
        (0, {"node": "n008"}, 1),
        (0, {"system": "alder"}, 1),
        (0, {"results": ["fail", "regression"]}, 1),
    ],
)
def test_a_slow_node_is_red_again_when_its_waiver_ends_or_it_gets_worse(
    fleet, expires, match, code
):
    waived_until(
        fleet, day(expires), **{"system": "big", "node": "n007", "results": ["slow"], **match}
    )
    assert (screen(fleet).code, slow_rows(fleet)) == (code, (code, 1 - code))


def test_the_pages_print_the_waiver_of_a_slow_node_until_it_has_one(fleet):
    (found,) = listed(fleet)
    printed = [report_page(fleet, now=None), one(fleet, "out/nodes/big-n007*.html")]
    for page in printed:
        assert offered(page.read_text()) == [found["finding"]]
        (text,) = re.findall(r"<pre>(.*?)</pre>", page.read_text(), re.S)
        (content,) = yaml.safe_load(html.unescape(text))
        assert waivers.Match(**content["match"]).node == "n007"
    assert waive(fleet, found["finding"], *GIVEN).code == 0
    report_page(fleet, now=None)
    for page in printed:
        content = page.read_text()
        assert offered(content) == []
        for value in (found["finding"], "storage team", "a disk is slow", f"{day(30)}"):
            assert value in content
    assert "slow-waived" in notes(printed[0]) and "waived" in notes(printed[1])
    # Its nights are framed as before.
    assert "<rect" in one(fleet, "out/checks/*.html").read_text()


def test_a_node_that_is_slow_in_one_of_two_systems_is_acknowledged_there(seasons):
    """Both have nodes with its name."""
    (found,) = [one for one in listed(seasons, "--system=alder") if one["kind"] == "slow"]
    assert waive(seasons, "nid0007", *GIVEN).code == 0
    (flag,) = json.loads(screen(seasons, "--format=json").out)
    assert (flag["node"], flag["waiver"]) == ("nid0007", found["finding"])


@pytest.mark.parametrize(
    ("kind", "systems", "covered"),
    [
        ("node", {"big"}, True),
        ("link", {"big"}, True),
        # Nodes of two systems have the name.
        ("node", {"big", "small"}, False),
        ("node", set(), False),
        # It has no loss that could grow.
        ("setting", {"big"}, False),
    ],
)
def test_what_a_waiver_covers_of_what_is_flagged(kind, systems, covered):
    name = ("r1", "r2") if kind == "link" else ("n007",)
    flag = Flag("20261120", kind, name, 0.1, 1.0, "20261118", systems=systems)
    today = triage.Triage([], lookup.loaded(paths.reference()), waivers.today())
    offers = today.of_flags("big", [flag])
    assert [one.names[1] for one in offers] == [":".join(name)] * (kind != "setting")
    known = waivers.Waiver(
        id="known", reason="r", owner="o", expires=day(1),
        match={"system": "big", "node": ":".join(name), "results": ["slow"], "max_loss": "10 %"},
    )  # fmt: skip
    flag.waive([known])
    assert flag.waiver == (known if covered else None)
    assert bool(today.of_flags("big", [flag])) == (kind != "setting" and not covered)


# -- files of the site that are invalid ----------------------------------------------------------


def entry(name: str, **fields: object) -> dict:
    return {"id": name, "reason": "a disk is slow", "owner": "storage team", "expires": day(3),
            "match": {"system": "alder", "check": name}} | fields  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (entry("wrong", owner=""), "input.wrong-file"),
        ("wrong", "input.wrong-file"),
        (entry("wrong", expires=day(400)), "reference.wrong-waiver"),
        (entry("stream", match={"system": "birch"}), "reference.wrong-waiver"),
    ],
)
def test_an_invalid_waiver_costs_no_other_one(slow, wrong, code):
    path = slow / "reference" / "waivers.yaml"
    path.write_text(yaml.safe_dump([entry("stream"), wrong, entry("well")]))
    made = write(slow, slow / "out")
    page = slow / "out" / "index.html"
    assert (count(shown(page, "red")), count(shown(page, "waived"))) == (0, 1)
    (fault,) = made.faults
    assert fault.startswith(f"{path}: ") and fault.endswith(f"[{code}]")
    assert "waivers.yaml" in shown(page, "wrong")
    found, faults = waivers.load_valid(slow / "reference")
    assert ([one.id for one in found], faults) == (["stream", "well"], [fault])


@pytest.mark.parametrize("content", ["- [", "a: b\n", b"\xff"])
def test_a_file_without_any_valid_waiver_is_one_fault(tmp_path, content):
    path = tmp_path / "waivers.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found, faults = waivers.load_valid(tmp_path)
    assert found == [] and len(faults) == 1 and str(path) in faults[0]
    path.unlink()
    assert waivers.load_valid(tmp_path) == ([], [])


def test_what_is_invalid_elsewhere_prevents_no_waiver(tmp_path):
    folder = sessions_of(tmp_path, [{"figures": [SLOW]}])
    a_baseline(folder, {"id": "wrong", "metric": "copy", "value": "fast"}, {"id": NAME})
    inventory = folder / "systems" / "inventory" / "alder.json"
    inventory.parent.mkdir(parents=True)
    inventory.write_text("{")
    (found,) = listed(folder)
    assert found["loss"] == pytest.approx(1 - 200 / 290)
    done = waive(folder, found["finding"], *GIVEN)
    assert done.code == 0
    assert {*done.codes} == {"reference.wrong-table", "system.wrong-inventory"}
    assert [one.id for one in waivers.load(folder / "reference")] == [found["finding"]]


def test_an_invalid_file_of_waivers_is_not_edited(slow):
    (found,) = listed(slow)
    path = slow / "reference" / "waivers.yaml"
    path.write_text("- {id: w, reason: no owner}\n")
    done = waive(slow, found["finding"], *GIVEN)
    assert done.code == 2 and {*done.codes} == {"input.wrong-file"}
    assert f"{path}: waiver 1 (w)" in done.err
    assert path.read_text() == "- {id: w, reason: no owner}\n"


# -- the command line ----------------------------------------------------------------------------


def test_records_that_cannot_be_read_are_reported(slow):
    (found,) = listed(slow)
    (path,) = slow.glob("sessions/*/records.jsonl")
    with path.open("a") as file:
        file.write("damaged\n")
    for words in ([], [found["finding"], *GIVEN]):
        done = waive(slow, *words)
        assert (done.code, done.codes) == (2, ["history.damaged"])
        assert f"{path}:3: " in done.err
    assert [one.id for one in waivers.load(slow / "reference")] == [found["finding"]]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["ID"], "input.wrong-option"),
        (["ID", *GIVEN[:4]], "input.wrong-option"),
        (GIVEN, "input.wrong-option"),
        (["--ticket", "4711"], "input.wrong-option"),
        (["ID", *GIVEN, "--until", "2020-01-01"], "input.wrong-option"),
        (["ID", *GIVEN, "--until", "soon"], "input.wrong-option"),
        (["ID", *GIVEN, "--format=json"], "input.wrong-option"),
        (["ID", *GIVEN, "--until", "900d"], "reference.wrong-waiver"),
        (["alder-nothing", *GIVEN], "input.unknown-name"),
        (["--system=elsewhere"], "history.nothing-selected"),
    ],
)
def test_what_waive_refuses(slow, arguments, code):
    (found,) = listed(slow)
    done = waive(slow, *(found["finding"] if one == "ID" else one for one in arguments))
    assert (done.code, done.codes) == (2, [code])
    assert not (slow / "reference" / "waivers.yaml").exists()


def test_the_list_fits_a_terminal(seasons):
    done = waive(seasons)
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 100
    rows = waive(seasons, "--format=csv").out.splitlines()
    assert len(rows) == 1 + len(listed(seasons))
