"""Waivers and the warning band: shown as what they are, never as a pass."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

import pytest
import yaml
from conftest import CHECKS, STANDINS, Done, Testbed
from plumbline.core.errors import Fault
from plumbline.reference import waivers

FIO = ["-n", "fio.*write", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]
PINGPONG = ["-n", "imb_p2p.*PingPong", "-S", "num_samples=1", "-S", "num_warmups=0"]

#: The stand-in prints 1973.79 MB/s: outside of 5 % below 2200, and near the bound below 2060.
FAR, NEAR, WELL = 2200, 2060, 1980


def day(offset: int) -> str:
    return str(waivers.today() + datetime.timedelta(days=offset))


def waiver(name: str = "slow-disk", expires: int = 30, **match: object) -> dict:
    return {
        "id": name,
        "reason": "one of two controllers is down",
        "owner": "storage team",
        "expires": day(expires),
        "match": {"system": "testbed", **match},
    }


def waive(testbed: Testbed, *listed: dict) -> Path:
    path = testbed.reference / "site" / "waivers.yaml"
    path.write_text(yaml.safe_dump([*listed]))
    return path


def refer(testbed: Testbed, value: float, **more: object) -> None:
    testbed.refer(
        {"id": "disk", "benchmark": "fio", "metric": "write_bandwidth", "value": value,
         "unit": "MB/s", **more}
    )  # fmt: skip


@pytest.fixture
def slow(testbed: Testbed) -> Testbed:
    """A system whose file system is slower than its reference."""
    testbed.environment("disk", "fio")
    refer(testbed, FAR)
    return testbed


def test_without_a_waiver_it_fails(slow: Testbed) -> None:
    done = slow.plumbline("run", *FIO)
    assert done.code == 1
    assert done.record("direction=write")["result"] == "fail"


@pytest.mark.parametrize("command", ["plumbline", "reframe"])
def test_a_covered_failure_is_waived_and_never_a_pass(slow: Testbed, command: str) -> None:
    waive(slow, waiver(check="fio", metric="write_*"))
    if command == "plumbline":
        done = slow.plumbline("run", *FIO)
    else:
        done = slow.reframe("-c", CHECKS, "-r", *FIO)
    assert done.code == 0, done.output
    fields = done.record("direction=write")
    (fom,) = fields["foms"]
    assert (fields["result"], fields["waiver"]) == ("waived", "slow-disk")
    assert (fom["verdict"], fom["waiver"]) == ("waived", "slow-disk")
    # What it measured, what bounds it and why it is waived: all there to read.
    assert fom["value"] == pytest.approx(1973.79, abs=0.01) and fom["reference"] == "disk"
    for part in ("1973.79", "[2090, open]", "slow-disk", "storage team", day(30), "controllers"):
        assert part in fields["reason"]
    assert f"waived: {fields['check']} @node+disk-io: {fields['reason']}" in done.out
    assert re.search(r"write_bandwidth +1973\.79 MB/s +WAIVED", done.out)
    assert "plumbline: 1 of 1 test case: 1 waived\n" in done.out
    assert "1 asserted (0 failed, 1 waived), 0 without a reference" in done.out
    # ReFrame's own words and store.
    assert "XFAIL" in done.out and "1 expected failure(s)" in done.out
    assert "[       OK" not in done.out
    report = json.loads((done.session / "report.json").read_text())
    (case,) = report["runs"][0]["testcases"]
    assert case["result"] == "xfail"
    assert [value[-1] for value in case["perfvalues"].values()] == ["xfail"]
    assert (done.session / fields["output"] / "sample-0.out").is_file()


#: What test cases of fio's writing are not.
OTHERS = [
    {"system": "another"},
    {"partition": "login"},
    {"environment": "other*"},
    {"check": "ior"},
    {"metric": "read_bandwidth"},
    {"size": 8},
    {"placement": "one-core"},
    {"location": "gpu0"},
    {"node": "n0042"},
    {"results": ["invalid", "error"]},
    {"check": "fio %placement=all-cores"},
]


def test_what_no_waiver_names_fails(slow: Testbed) -> None:
    waive(slow, *(waiver(f"other-{n}", **match) for n, match in enumerate(OTHERS)))
    done = slow.plumbline("run", *FIO)
    assert done.code == 1
    fields = done.record("direction=write")
    assert (fields["result"], fields["waiver"]) == ("fail", None)
    assert "waiver" not in fields["reason"]


def test_one_fault_that_is_not_covered_fails_the_case(testbed: Testbed) -> None:
    testbed.environment("mpich", "imb")
    rows = [
        {"id": f"{metric}-{size}", "benchmark": "imb", "metric": f"pingpong_{metric}",
         "message_size": size, "value": value, "unit": unit}
        for metric, size, value, unit in (("latency", 8, 0.01, "us"), ("latency", 16, 0.01, "us"))
    ]  # fmt: skip
    testbed.refer(*rows)
    waive(testbed, waiver(metric="pingpong_latency", size=8))
    done = testbed.plumbline("run", *PINGPONG)
    assert done.code == 1
    fields = done.record("imb_p2p")
    verdicts = {fom["size"]: fom["verdict"] for fom in fields["foms"] if fom["reference"]}
    assert verdicts == {8: "waived", 16: "fail"}
    assert (fields["result"], fields["waiver"]) == ("fail", None)
    assert "pingpong_latency_16" in fields["reason"]
    assert "pingpong_latency_8 " not in fields["reason"]
    assert "1 failed, 1 waived" in done.out
    # Each by a waiver of its own: both are told, and the exit code is 0.
    waive(testbed, waiver("eight", size=8), waiver("sixteen", size=16))
    both = testbed.plumbline("run", *PINGPONG)
    assert both.code == 0, both.output
    fields = both.record("imb_p2p")
    assert (fields["result"], fields["waiver"]) == ("waived", "eight")
    assert "waiver eight of" in fields["reason"] and "waiver sixteen of" in fields["reason"]


def test_above_a_ceiling_is_never_waived(slow: Testbed) -> None:
    refer(slow, 1000, kind="peak")
    waive(slow, waiver())
    done = slow.plumbline("run", *FIO)
    assert done.code == 1
    assert done.record("direction=write")["result"] == "fail"
    assert "ABOVE-CEILING" in done.out


def test_an_expired_waiver_covers_nothing_and_is_named(slow: Testbed) -> None:
    waive(slow, waiver(expires=-1))
    done = slow.plumbline("run", *FIO)
    assert done.code == 1
    fields = done.record("direction=write")
    assert (fields["result"], fields["waiver"]) == ("fail", None)
    assert f"expired waiver slow-disk of storage team, until {day(-1)}" in fields["reason"]
    assert re.search(r"^plumbline: expired waiver slow-disk of storage team", done.out, re.M)
    linted = slow.plumbline("lint")
    assert linted.code == 1
    assert "waivers.yaml: slow-disk: expired waiver slow-disk of storage team" in linted.err


def test_a_waiver_covers_on_its_last_day(slow: Testbed) -> None:
    waive(slow, waiver(expires=0))
    assert slow.plumbline("run", *FIO).code == 0


def test_a_waiver_of_what_passes_again_is_told(slow: Testbed) -> None:
    refer(slow, WELL)
    waive(slow, waiver(), waiver("elsewhere", partition="login"))
    done = slow.plumbline("run", *FIO)
    assert done.code == 0, done.output
    assert done.record("direction=write")["result"] == "pass"
    assert "plumbline: waiver slow-disk is no longer needed: 1 figure" in done.out
    assert "elsewhere" not in done.out


def broken(testbed: Testbed) -> None:
    """A program whose output cannot be trusted."""
    folder = testbed.folder / "broken"
    folder.mkdir(exist_ok=True)
    (folder / "write.out").write_text("{")
    testbed.environment("disk", "fio", folder)


def test_a_program_that_is_known_to_be_broken(testbed: Testbed) -> None:
    broken(testbed)
    waive(testbed, waiver(results=["invalid", "error"]))
    done = testbed.plumbline("run", *FIO)
    assert done.code == 0, done.output
    fields = done.record("direction=write")
    assert (fields["result"], fields["waiver"]) == ("waived", "slow-disk")
    assert fields["foms"] == [] and fields["phase"] == "sanity"
    assert "invalid: " in fields["reason"] and "storage team" in fields["reason"]
    assert "1 of 1 test case: 1 waived" in done.out and "XFAIL" in done.out
    # It waives no figure, and once the program works it is not needed.
    testbed.environments.clear()
    testbed.environment("disk", "fio")
    refer(testbed, FAR)
    done = testbed.plumbline("run", *FIO)
    assert done.code == 1
    assert done.record("direction=write")["result"] == "fail"
    assert "waiver slow-disk is no longer needed: 1 test case" in done.out


@pytest.mark.parametrize("command", ["plumbline", "reframe"])
def test_a_check_that_is_marked_xfail_is_waived_only_by_a_waiver(
    testbed: Testbed, command: str
) -> None:
    """ReFrame's own mark has no owner and no end."""
    testbed.environment("mpich", "imb", STANDINS / "outputs", wrong="")
    path = testbed.check_file("marked", num_samples=1, num_warmups=0)
    text = path.read_text().replace("@rfm.simple_test", "@rfm.xfail('bug 123')\n@rfm.simple_test")
    good = "('pingpong_latency', 8)"
    assert good in text

    def run() -> tuple[Done, dict]:
        if command == "plumbline":
            done = testbed.plumbline("run", "-c", path)
        else:
            done = testbed.reframe("-c", path, "-r")
        return done, done.record("marked")

    path.write_text(text.replace(good, "('pingpong_latency', 7)"))
    done, fields = run()
    assert fields["result"] == "invalid" and fields["waiver"] is None
    assert fields["reason"].startswith("xfail without a waiver: bug 123: invalid: sample-0.out: ")
    assert str(waivers.path_of(testbed.reference)) in fields["reason"]
    assert f"invalid: marked @node+mpich: {fields['reason']}" in done.out
    assert done.code == 1 or command == "reframe"
    waive(testbed, waiver(check="marked", results=["invalid"]))
    done, fields = run()
    assert done.code == 0 and (fields["result"], fields["waiver"]) == ("waived", "slow-disk")
    assert fields["reason"].startswith("bug 123: invalid: ") and "storage team" in fields["reason"]
    # What is marked and passes is told too.
    path.write_text(text)
    done, fields = run()
    assert fields["result"] == "error" and "marked xfail, and passed" in fields["reason"]
    assert done.code == 1


def test_a_broken_program_is_waived_only_by_name(testbed: Testbed) -> None:
    broken(testbed)
    waive(testbed, waiver())
    done = testbed.plumbline("run", *FIO)
    assert done.code == 1
    assert done.record("direction=write")["result"] == "invalid"
    waive(testbed, waiver(expires=-3, results=["invalid"]))
    done = testbed.plumbline("run", *FIO)
    assert done.code == 1
    fields = done.record("direction=write")
    assert fields["result"] == "invalid" and "; expired waiver slow-disk" in fields["reason"]


def test_a_test_case_that_ends_early_can_be_waived(testbed: Testbed) -> None:
    testbed.environment("disk", "fio")
    waive(testbed, waiver(results=["error"], node="no*"), waiver("all", results=["error"]))
    testbed.env["PLUMBLINE_STRICT"] = "1"
    testbed.environments[0]["extras"]["provider"] = "pip"
    testbed.write()
    done = testbed.plumbline("run", *FIO, PLUMBLINE_TOOLS=testbed.folder / "none")
    assert [(f["result"], f["waiver"]) for f in done.records] == [("waived", "all")], done.output
    assert done.records[0]["phase"] == "setup"


# -- the file ------------------------------------------------------------------------------------


def refused(done: Done, *parts: str) -> None:
    assert done.code == 2, done.output
    assert "Traceback" not in done.output and done.sessions == []
    for part in parts:
        assert part in done.err, done.err


def test_a_faulty_file_stops_the_session(slow: Testbed) -> None:
    path = waive(slow, {**waiver(), "expiry": day(3)})
    refused(
        slow.plumbline("run", *FIO),
        f"plumbline: {path}: waiver 1 (slow-disk): expiry: no such key; did you mean expires",
    )
    refused(
        slow.reframe("-c", CHECKS, "-r", *FIO),
        f"plumbline: {path}: waiver 1 (slow-disk): expiry: no such key; did you mean expires",
    )
    linted = slow.plumbline("lint")
    assert (
        linted.code == 1
        and f"{path}: waiver 1 (slow-disk): expiry: no such key; did you mean expires" in linted.err
    )


WRONG = [
    ({"reason": None}, "waiver 1 (slow-disk): reason: "),
    ({"reason": " "}, "waiver 1 (slow-disk): reason: "),
    ({"owner": ""}, "waiver 1 (slow-disk): owner: "),
    ({"expires": None}, "waiver 1 (slow-disk): expires: is missing"),
    ({"expires": "soon"}, "waiver 1 (slow-disk): expires: "),
    ({"expires": "01.12.2026"}, "waiver 1 (slow-disk): expires: write 2026-12-01"),
    ({"expires": 20301231}, "waiver 1 (slow-disk): expires: not a date, such as 2026-12-31"),
    ({"expires": "2026-12-31T10:00:00"}, "waiver 1 (slow-disk): expires: "),
    ({"expires": day(400)}, "slow-disk: expires "),
    ({"match": None}, "waiver 1 (slow-disk): match: is missing"),
    ({"match": {}}, "waiver 1 (slow-disk): match.system: is missing"),
    (
        {"match": {"system": "testbed", "sytem": "x"}},
        "waiver 1 (slow-disk): match.sytem: no such key; did you mean system",
    ),
    (
        {"match": {"system": "testbed", "results": ["above-ceiling"]}},
        "waiver 1 (slow-disk): match.results.0: ",
    ),
    (
        {"weather": "hot"},
        "waiver 1 (slow-disk): weather: no such key; available: id, reason, ",
    ),
    ({"id": None}, "waiver 1: id: is missing"),
    ({"match": {"system": "testbed", "results": []}}, "waiver 1 (slow-disk): match.results: "),
    ({"match": {"system": "testbed", "size": "8"}}, "waiver 1 (slow-disk): match.size: "),
    (
        {"match": {"system": "testbed", "metric": "triad", "results": ["fail", "error"]}},
        "waiver 1 (slow-disk): match: a test case with the result 'error' has no figures",
    ),
]


@pytest.mark.parametrize(("change", "says"), WRONG)
def test_a_faulty_waiver(tmp_path: Path, change: dict, says: str) -> None:
    fields = {key: value for key, value in {**waiver(), **change}.items() if value is not None}
    (tmp_path / "site").mkdir()
    path = waivers.path_of(tmp_path)
    path.write_text(yaml.safe_dump([fields]))
    with pytest.raises(Fault, match=re.escape(f"{path}: {says}")):
        waivers.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: b\n", "file: the file must be a list of waivers, each after a dash, such as `- {id: "),
        ("- [", "not valid YAML"),
        ("- {id: a, reason: b, owner: c, expires: 2026-13-45, match: {system: d}}", "month"),
        ("\xff", "cannot be read"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "site").mkdir()
    path = waivers.path_of(tmp_path)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Fault, match=f"{re.escape(str(path))}.*{says}"):
        waivers.load(tmp_path)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"expires": "soon"}, "expires: must be a day, such as 2026-12-31"),
        ({"reason": None}, "reason: must be a text"),
        ({"match": "testbed"}, "match: must be keys with their values, such as {key: value}"),
        ({"match": {"system": "a", "results": "fail"}},
         "match.results: must be a list, such as [one, two]"),
        ({"match": {"system": "a", "size": "8"}}, "match.size: must be a whole number"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind(tmp_path: Path, changed: dict, says: str) -> None:
    """In words of the file, not of the library that reads it."""
    (tmp_path / "site").mkdir()
    path = waivers.path_of(tmp_path)
    path.write_text(yaml.safe_dump([waiver() | changed]))
    with pytest.raises(Fault) as refused:
        waivers.load(tmp_path)
    assert str(refused.value) == f"{path}: waiver 1 (slow-disk): {says}"


def test_two_of_one_id_and_no_file(tmp_path: Path) -> None:
    assert waivers.load(tmp_path) == []
    (tmp_path / "site").mkdir()
    path = waivers.path_of(tmp_path)
    path.write_text("# the last one is mended\n")
    assert waivers.load(tmp_path) == []
    path.write_text(yaml.safe_dump([waiver(), waiver()]))
    with pytest.raises(Fault, match=f"{path}: id 'slow-disk' is used 2 times: give each waiver"):
        waivers.load(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("", "anything", True),
        ("n00?2", "n0042", True),
        ("n00?2", "n00422", False),
        ("osu*", "osu_latency %mode=D", True),
        ("gpu[0-3]", "gpu1", False),
        ("gpu[0-3]", "gpu[0-3]", True),
        ("N0042", "n0042", False),
    ],
)
def test_names(pattern: str, name: str, fits: bool) -> None:
    assert waivers.matches(pattern, name) is fits


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({"node": "n2"}, True),
        ({"node": "n2.example.org"}, True),
        ({"node": "n"}, False),
        ({"check": "osu_latency"}, True),
        ({"check": "osu_latency %placement=off-node"}, True),
        ({"check": "osu"}, False),
        ({"metric": "latency", "size": 8}, True),
        ({"size": 0}, False),
        ({"placement": "off-*", "location": ""}, True),
    ],
)
def test_what_a_waiver_is_about(match: dict, fits: bool) -> None:
    subject = waivers.Subject(
        "testbed", "node", "gnu", "osu_latency %placement=off-node", "off-node",
        ("n1", "n2.example.org"), "latency", 8,
    )  # fmt: skip
    assert waivers.applies_to(waivers.Match(system="testbed", **match), subject) is fits


LOST = {
    "system": ("nosuch", "available: testbed"),
    "partition": ("gpu", "available: node"),
    "environment": ("gcc", "available: disk-io"),
    "metric": ("write_bandwitdh", "did you mean write_bandwidth"),
    "placement": ("of-node", "did you mean off-node, on-node, full-node"),
}


def test_lint_names_waivers_of_nothing(slow: Testbed) -> None:
    path = waive(slow, waiver(check="fio"), *(waiver(k, **{k: v}) for k, (v, _) in LOST.items()))
    done = slow.plumbline("lint")
    assert done.code == 1
    lines = [line for line in done.err.splitlines() if "waivers" in line]
    assert len(lines) == len(LOST)
    for line, (key, (value, says)) in zip(lines, LOST.items(), strict=True):
        assert f"{path}: {key}: match.{key}: no {key} {value!r}; {says}" in line
    waive(slow, waiver(check="fio"), waiver("lost", check="foi"))
    done = slow.plumbline("lint")
    assert done.code == 1
    assert f"{path}: lost: match: matches no test case of testbed" in done.err
    assert "slow-disk" not in done.err


def test_lint_of_good_waivers(slow: Testbed) -> None:
    waive(slow, waiver(check="fio", metric="write_bandwidth", placement="all-*", node="n*"))
    done = slow.plumbline("lint")
    assert done.code == 0, done.output


# -- the warning band ----------------------------------------------------------------------------


def test_a_figure_near_its_bound_passes_and_is_told(slow: Testbed) -> None:
    refer(slow, NEAR)
    done = slow.plumbline("run", *FIO)
    assert done.code == 0, done.output
    (fom,) = done.record("direction=write")["foms"]
    assert (fom["verdict"], fom["near_bound"], fom["better"]) == ("pass", True, "higher")
    assert re.search(r"write_bandwidth +1973\.79 MB/s +pass \(near its bound\)", done.out)
    assert "1 asserted (0 failed, 1 near their bound), 0 without a reference" in done.out
    refer(slow, WELL)
    done = slow.plumbline("run", *FIO)
    (fom,) = done.record("direction=write")["foms"]
    assert (fom["verdict"], fom["near_bound"]) == ("pass", False)
    assert "near_bound" not in done.out[done.out.index("figure of merit") :]


def test_a_figure_near_its_bound_is_shown_where_it_is_no_headline(testbed: Testbed) -> None:
    testbed.environment("mpich", "imb")
    text = (STANDINS / "outputs" / "PingPong.out").read_text()
    (latency,) = re.findall(r"^ +2 +1000 +(\S+) ", text, re.M)
    # A tenth above is the bound, and a hundredth below the bound is near it.
    value = float(latency) / 1.095
    testbed.refer(
        {"id": "two", "benchmark": "imb", "metric": "pingpong_latency", "message_size": 2,
         "value": value, "unit": "us"}
    )  # fmt: skip
    done = testbed.plumbline("run", *PINGPONG)
    assert done.code == 0, done.output
    assert re.search(r"pingpong_latency_2 +\S+ us +pass \(near its bound\)", done.out)
