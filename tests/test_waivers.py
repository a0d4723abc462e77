"""Waivers and the warning band: shown as what they are, never as a pass."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from conftest import CHECKS, STANDINS, Done, Testbed, codes_in, refused
from plumbline.check.record import Record
from plumbline.core.errors import Fault
from plumbline.reference import waivers
from plumbline.session import summary
from records import case, figure

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
    path = testbed.reference / "waivers.yaml"
    path.write_text(yaml.safe_dump([*listed]))
    return path


def refer(testbed: Testbed, value: float, **more: object) -> None:
    testbed.refer(
        {"id": "disk", "benchmark": "fio", "metric": "write_bandwidth", "value": value,
         "unit": "MB/s", **more}
    )  # fmt: skip


#: Cases of the conditions that none of the test cases here has.
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
    {"check": "fio %placement=all-cores"},
]


@dataclass(frozen=True)
class Expected:
    """What becomes of an environment's test case.

    :ivar value: of its reference.
    :ivar waiver: the rest of its waiver, if it has one.
    :ivar result: what the record has then; ``verdict`` what its figure has.
    :ivar note: code of what the session says of the waiver at its end.
    :ivar broken: its program's output cannot be trusted.
    """

    result: str
    verdict: str = ""
    value: float = FAR
    waiver: dict | None = None
    note: str = ""
    kind: str = "measured"
    broken: bool = False
    near_bound: bool = False

    @property
    def waived(self) -> bool:
        return self.result == "waived"


#: Environment -> what becomes of its test case.
EXPECTED = {
    "bare": Expected("fail", "fail"),
    "covered": Expected(
        "waived",
        "waived",
        waiver={"check": "fio", "metric": "write_*", "environment": "*covered-io"},
    ),
    # The same waiver matches this, and is needed all the same.
    "recovered": Expected("pass", "pass", value=WELL),
    "today": Expected("waived", "waived", waiver={"expires": 0}),
    "expired": Expected("fail", "fail", waiver={"expires": -1}, note="waiver.expired"),
    "above": Expected("fail", "above-ceiling", value=1000, kind="peak", waiver={}),
    "again": Expected("pass", "pass", value=WELL, waiver={}, note="waiver.not-needed"),
    "near": Expected("pass", "pass", value=NEAR, near_bound=True),
    "broken": Expected("waived", waiver={"results": ["invalid", "error"]}, broken=True),
    # Only a waiver that has the result covers it.
    "unnamed": Expected("invalid", waiver={}, broken=True),
    "past": Expected(
        "invalid",
        waiver={"expires": -3, "results": ["invalid"]},
        note="waiver.expired",
        broken=True,
    ),
    # It measures 10.3 % less than its reference.
    "smaller": Expected("fail", "fail", waiver={"max_loss": "10 %"}),
    "larger": Expected("waived", "waived", waiver={"max_loss": "10.5%"}),
    # Whether a regression is still there is nothing that a session knows.
    "regressed": Expected("pass", "pass", value=WELL, waiver={"results": ["fail", "regression"]}),
    # It waives no figure, and once the program works it is not needed.
    "works": Expected("fail", "fail", waiver={"results": ["invalid"]}, note="waiver.not-needed"),
}


@pytest.fixture(scope="module")
def session(make_testbed: Callable[..., Testbed]) -> Done:
    """A session of all that is expected."""
    testbed = make_testbed()
    broken = testbed.folder / "broken"
    broken.mkdir()
    (broken / "write.out").write_text("{")
    rows, listed = [], [waiver(f"other-{n}", **match) for n, match in enumerate(OTHERS)]
    for name, expected in EXPECTED.items():
        environment = f"{name}-io"
        testbed.environment(name, "fio", broken if expected.broken else None)
        rows.append({"id": name, "benchmark": "fio", "metric": "write_bandwidth", "unit": "MB/s",
                     "toolchain": environment, "value": expected.value,
                     "kind": expected.kind})  # fmt: skip
        if expected.waiver is not None:
            match = {"environment": environment, **expected.waiver}
            listed.append(waiver(f"of-{name}", **match))
    testbed.refer(*rows)
    waive(testbed, *listed)
    return testbed.plumbline("run", *FIO)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_waiver_covers(session: Done, name: str) -> None:
    expected = EXPECTED[name]
    fields = session.record("direction=write", f"{name}-io")
    known = f"of-{name}" if expected.waived else None
    assert (fields["result"], fields["waiver"]) == (expected.result, known)
    if expected.broken:
        assert fields["foms"] == [] and fields["phase"] == "sanity"
    else:
        (fom,) = fields["foms"]
        assert (fom["verdict"], fom["near_bound"]) == (expected.verdict, expected.near_bound)
        assert fom["waiver"] == known
        # What it measured and what bounds it: all there to read.
        assert fom["value"] == pytest.approx(1973.79, abs=0.01)
    notes = json.loads((session.session / "end.json").read_text())["notes"]
    codes = [codes_in(note) for note in notes if f" of-{name} " in note]
    assert codes == ([[expected.note]] if expected.note else [])
    if expected.waived:
        for part in (known, "storage team", day(30 if name != "today" else 0), "controllers"):
            assert part in fields["reason"]
    elif expected.note == "waiver.expired":
        assert (
            f"of-{name} of storage team, until {day(expected.waiver['expires'])}"
            in (fields["reason"])
        )
    elif name == "smaller":
        assert "10.3%" in fields["reason"] and "of-smaller of storage team" in fields["reason"]
    else:
        assert "waiver" not in (fields["reason"] or "")


def test_a_session_with_a_fault_that_no_waiver_covers(session: Done) -> None:
    assert session.code == 1
    results = Counter(expected.result for expected in EXPECTED.values())
    (counts,) = re.findall(rf" {len(EXPECTED)} test cases: (.*)", session.out)
    assert {*counts.split(", ")} == {f"{count} {name}" for name, count in results.items()}
    for verdict in ("WAIVED", "ABOVE-CEILING", r"pass \(near"):
        assert re.search(rf"write_bandwidth +1973\.79 MB/s +{verdict}", session.out)


def test_reframe_shows_a_waived_case_as_an_expected_failure(testbed: Testbed) -> None:
    """Never as a pass, in its own words and store."""
    testbed.environment("disk", "fio")
    refer(testbed, FAR)
    waive(testbed, waiver())
    done = testbed.reframe("-c", CHECKS, "-r", *FIO)
    assert done.code == 0, done.output
    assert "XFAIL" in done.out and "[       OK" not in done.out
    report = json.loads((done.session / "report.json").read_text())
    (case,) = report["runs"][0]["testcases"]
    assert case["result"] == "xfail"
    assert [value[-1] for value in case["perfvalues"].values()] == ["xfail"]
    fields = done.record("direction=write")
    assert fields["result"] == "waived"
    assert (done.session / fields["output"] / "sample-0.out").is_file()


def test_each_figure_needs_a_waiver(testbed: Testbed) -> None:
    """In one environment, of two figures that fail one is covered; in the other, each is, by a
    waiver of its own. In a third, a figure near its bound is shown, though it is no headline."""
    for name in ("one", "both", "near"):
        testbed.environment(name, "imb")
    text = (STANDINS / "outputs" / "PingPong.out").read_text()
    (latency,) = re.findall(r"^ +2 +1000 +(\S+) ", text, re.M)
    common = {"benchmark": "imb", "metric": "pingpong_latency", "unit": "us"}
    # A tenth above is the bound, and a hundredth below the bound is near it.
    near = common | {"id": "two", "message_size": 2, "toolchain": "near"}
    testbed.refer(
        near | {"value": float(latency) / 1.095},
        *(
            common
            | {"id": f"{name}-{size}", "message_size": size, "toolchain": name, "value": 0.01}
            for name in ("one", "both")
            for size in (8, 16)
        ),
    )
    waive(
        testbed,
        waiver("one-eight", environment="one", metric="pingpong_latency", size=8),
        waiver("eight", environment="both", size=8),
        waiver("sixteen", environment="both", size=16),
    )
    done = testbed.plumbline("run", *PINGPONG)
    assert done.code == 1
    fields = {name: done.record("imb_p2p", name) for name in ("one", "both", "near")}
    verdicts = {
        name: {fom["size"]: fom["verdict"] for fom in found["foms"] if fom["reference"]}
        for name, found in fields.items()
    }
    assert verdicts == {
        "one": {8: "waived", 16: "fail"},
        "both": {8: "waived", 16: "waived"},
        "near": {2: "pass"},
    }
    one, both = fields["one"], fields["both"]
    assert (one["result"], one["waiver"]) == ("fail", None)
    assert "pingpong_latency_16" in one["reason"] and "pingpong_latency_8 " not in one["reason"]
    assert (both["result"], both["waiver"]) == ("waived", "eight")
    assert "eight of" in both["reason"] and "sixteen of" in both["reason"]
    assert re.search(r"pingpong_latency_2 +\S+ us +pass \(near", done.out)


@pytest.mark.parametrize("command", ["plumbline", "reframe"])
def test_a_check_that_is_marked_xfail_is_waived_only_by_a_waiver(
    testbed: Testbed, command: str
) -> None:
    """ReFrame's own mark has no owner and no end; and what is marked and passes is an error."""
    testbed.environment("mpich", "imb")
    waive(testbed, waiver(check="waived", results=["invalid"]))
    options = []
    for name, size in (("unwaived", 7), ("waived", 7), ("passes", 8)):
        path = testbed.check_file(
            name, num_samples=1, num_warmups=0, wanted=[("pingpong_latency", size)]
        )
        marked = "@rfm.xfail('bug 123')\n@rfm.simple_test"
        path.write_text(path.read_text().replace("@rfm.simple_test", marked))
        options += ["-c", path]
    if command == "plumbline":
        done = testbed.plumbline("run", *options)
        assert done.code == 1
    else:
        done = testbed.reframe(*options, "-r")
    unwaived, waived, passes = map(done.record, ("unwaived", "waived", "passes"))
    assert (unwaived["result"], unwaived["waiver"]) == ("invalid", None)
    assert unwaived["code"] == "case.xfail" and "bug 123" in unwaived["reason"]
    assert str(waivers.path_of(testbed.reference)) in unwaived["reason"]
    assert (waived["result"], waived["waiver"]) == ("waived", "slow-disk")
    assert "bug 123" in waived["reason"] and "storage team" in waived["reason"]
    assert (passes["result"], passes["code"]) == ("error", "case.xfail")


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


@pytest.fixture
def slow(testbed: Testbed) -> Testbed:
    """A system whose file system is slower than its reference."""
    testbed.environment("disk", "fio")
    refer(testbed, FAR)
    return testbed


def test_a_faulty_file_stops_the_session(slow: Testbed) -> None:
    path = waive(slow, {**waiver(), "expiry": day(3)})
    where = f"{path}: waiver 1 (slow-disk): expiry: "
    for done in (slow.plumbline("run", *FIO), slow.reframe("-c", CHECKS, "-r", *FIO)):
        refused(done, where, "expires", "[input.wrong-file]")
        assert done.sessions == []
    linted = slow.asked("lint")
    assert linted.code == 1 and where in linted.err


def written(folder: Path, text: str | bytes) -> Path:
    """The file of the waivers, with this text."""
    path = waivers.path_of(folder)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


#: What is changed in a waiver -> the field at fault, and words of the file in the message.
WRONG = [
    ({"reason": None}, "reason", []),
    ({"reason": " "}, "reason", []),
    ({"owner": ""}, "owner", []),
    ({"expires": None}, "expires", []),
    ({"expires": "soon"}, "expires", ["2026-12-31"]),
    ({"expires": "01.12.2026"}, "expires", ["2026-12-01"]),
    ({"expires": 20301231}, "expires", ["2026-12-31"]),
    ({"expires": "2026-12-31T10:00:00"}, "expires", []),
    ({"match": None}, "match", []),
    ({"match": "testbed"}, "match", ["{key: value}"]),
    ({"match": {}}, "match.system", []),
    ({"match": {"system": "testbed", "sytem": "x"}}, "match.sytem", ["system"]),
    ({"match": {"system": "testbed", "results": ["above-ceiling"]}}, "match.results.0", []),
    ({"match": {"system": "testbed", "results": []}}, "match.results", []),
    ({"match": {"system": "testbed", "results": "fail"}}, "match.results", ["[one, two]"]),
    ({"match": {"system": "testbed", "size": "8"}}, "match.size", []),
    (
        {"match": {"system": "testbed", "metric": "triad", "results": ["fail", "error"]}},
        "match",
        ["'error'"],
    ),
    *(
        ({"match": {"system": "testbed", "max_loss": share}}, "match.max_loss", ["15 %"])
        for share in (0.15, 15, "15", "-15 %", "much")
    ),
    (
        {"match": {"system": "testbed", "max_loss": "9 %", "results": ["invalid"]}},
        "match",
        ["max_loss"],
    ),
    ({"match": {"system": "testbed", "results": ["slow"]}}, "match", ["add node"]),
    (
        {"match": {"system": "testbed", "node": "n1", "check": "fio", "results": ["fail", "slow"]}},
        "match",
        ["remove check"],
    ),
    (
        {
            "match": {
                "system": "testbed",
                "node": "n1",
                "max_loss": "9 %",
                "results": ["slow", "error"],
            }
        },
        "match",
        ["'error'"],
    ),
    ({"weather": "hot"}, "weather", ["id, reason, "]),
]


@pytest.mark.parametrize(("change", "field", "parts"), WRONG)
def test_a_faulty_waiver(tmp_path: Path, change: dict, field: str, parts: list[str]) -> None:
    """In words of the file, not of the library that reads it."""
    fields = {key: value for key, value in {**waiver(), **change}.items() if value is not None}
    path = written(tmp_path, yaml.safe_dump([fields]))
    with pytest.raises(Fault) as fault:
        waivers.load(tmp_path)
    message = str(fault.value).removeprefix(f"{path}: waiver 1 (slow-disk): {field}: ")
    assert message != str(fault.value)
    assert [part for part in parts if part not in message] == []
    assert "\n" not in message
    assert not re.search(r"(?i)\b(input|valid|dict|tuple|str|string)\b", message)


ONE = yaml.safe_dump([waiver(metric="bandwidth")])
TWICE = yaml.safe_dump([waiver(), waiver()])


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        (yaml.safe_dump([{**waiver(), "expires": day(400)}]), "reference.wrong-waiver", day(400)),
        (TWICE, "reference.wrong-waiver", "'slow-disk'"),
        (yaml.safe_dump([{**waiver(), "id": ""}]), "input.wrong-file", "waiver 1: id: "),
        ("a: b\n", "input.wrong-file", "`- {id: "),
        ("- [", "input.wrong-file", ":1:"),
        # It would cover all of the system.
        (
            ONE + "  match: {system: testbed}\n",
            "input.wrong-file",
            f":{ONE.count(chr(10)) + 1}:3: ",
        ),
        (f"- {{expires: {day(0)[:5]}13-45}}", "input.unreadable-file", "month"),
        (b"\xff", "input.unreadable-file", "0xff"),
    ],
)
def test_a_faulty_file(tmp_path: Path, text: str | bytes, code: str, part: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Fault) as fault:
        waivers.load(tmp_path)
    assert fault.value.code == code
    assert str(fault.value).startswith(f"{path}") and part in str(fault.value)


def test_no_waiver_and_no_file(tmp_path: Path) -> None:
    assert waivers.load(tmp_path) == []
    written(tmp_path, "# the last one is fixed\n")
    assert waivers.load(tmp_path) == []


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


@pytest.mark.parametrize(
    ("node", "fits"),
    [
        ("n7:n8", True),
        ("n7.example.org:n8.example.org", True),
        ("n7:*", True),
        ("n7", False),
        ("n8:n7", False),
    ],
)
def test_a_slow_pair_is_named_by_both_nodes(node: str, fits: bool) -> None:
    match = waivers.Match(system="testbed", node=node, results=["slow"])
    names = ("n7.example.org:n8.example.org",)
    assert waivers.applies_to(match, waivers.Subject("testbed", "", "", "", nodes=names)) is fits


@pytest.mark.parametrize(
    ("loss", "fits"), [(None, True), (-0.5, True), (0.15, True), (0.151, False)]
)
def test_a_waiver_covers_losses_up_to_its_own(loss: float | None, fits: bool) -> None:
    match = waivers.Match(system="testbed", max_loss="15 %")
    subject = waivers.Subject("testbed", "node", "gnu", "stream", metric="triad", loss=loss)
    assert waivers.applies_to(match, subject) is fits


@pytest.mark.parametrize(("result", "codes"), [("slow", 0), ("regression", 0), ("invalid", 1)])
def test_a_session_does_not_know_what_only_a_history_shows(result: str, codes: int) -> None:
    known = waivers.Waiver.model_validate(waiver(system="hill", node="n1", results=[result]))
    passed = Record.model_validate(case("s", "2026-11-01T00:00:00Z", foms=[figure(1.0)]))
    notes = summary.waiver_notes([known], [passed])
    assert [note.endswith("[waiver.not-needed]") for note in notes] == [True] * codes


# -- waivers that a command adds -----------------------------------------------------------------


def added(folder: Path, *listed: dict) -> list[str]:
    """The ids in the file after these waivers were added."""
    waivers.add(folder, yaml.safe_dump([*listed], sort_keys=False))
    return [one.id for one in waivers.load(folder)]


@pytest.mark.parametrize("text", [None, "", "# no waiver yet\n"])
def test_the_first_waiver_is_added(tmp_path: Path, text: str | None) -> None:
    folder = tmp_path / "reference"
    if text is not None:
        folder.mkdir()
        written(folder, text)
    assert added(folder, waiver()) == ["slow-disk"]
    assert waivers.path_of(folder).read_text().startswith(text or "- id")


def test_a_waiver_is_added_to_what_is_there(tmp_path: Path) -> None:
    mine = f"# ours\n- {{id: a, reason: r, owner: o, expires: {day(3)}, match: {{system: s}}}}  # !"
    path = written(tmp_path, mine)
    assert added(tmp_path, waiver("b"), waiver("c")) == ["a", "b", "c"]
    assert path.read_text().startswith(f"{mine}\n- id: b\n")


@pytest.mark.parametrize(
    ("text", "change", "code"),
    [
        ("  - {id: a, reason: r, owner: o, expires: DAY, match: {system: s}}", {}, "wrong-waiver"),
        ("[{id: a, reason: r, owner: o, expires: DAY, match: {system: s}}]", {}, "wrong-waiver"),
        ("- {id: slow-disk, reason: r, owner: o, expires: DAY, match: {system: s}}", {},
         "wrong-waiver"),
        ("", {"expires": day(400)}, "wrong-waiver"),
        ("", {"owner": ""}, "wrong-file"),
        ("- {id: a}", {}, "wrong-file"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_extended_is_left_alone(
    tmp_path: Path, text: str, change: dict, code: str
) -> None:
    path = written(tmp_path, text.replace("DAY", day(3)))
    before = path.read_text()
    with pytest.raises(Fault) as fault:
        added(tmp_path, waiver() | change)
    assert fault.value.code.endswith(f".{code}") and str(path) in str(fault.value)
    assert path.read_text() == before


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "reference").write_text("a file")
    with pytest.raises(Fault) as fault:
        added(tmp_path / "reference", waiver())
    assert fault.value.code == "files.not-writable" and "- id: slow-disk" in str(fault.value)


#: A key of a waiver -> a name that nothing has, and those that are suggested.
LOST = {
    "system": ("nosuch", "testbed"),
    "partition": ("gpu", "node"),
    "environment": ("gcc", "disk-io"),
    "metric": ("write_bandwitdh", "write_bandwidth"),
    "placement": ("of-node", "off-node, on-node, full-node"),
}


def test_lint_names_waivers_of_nothing_and_expired_ones(slow: Testbed) -> None:
    lost = [waiver(key, **{key: name}) for key, (name, _) in LOST.items()]
    good = waiver("good", check="fio", metric="write_bandwidth", placement="all-*", node="n*")
    path = waive(slow, good, *lost, waiver("old", expires=-1))
    done = slow.asked("lint")
    assert done.code == 1
    assert done.codes == ["waiver.matches-nothing"] * len(LOST) + ["waiver.expired"]
    for line, (key, (name, suggested)) in zip(done.err.splitlines(), LOST.items(), strict=False):
        assert f"{path}: {key}: match.{key}: " in line
        assert f"{name!r}" in line and suggested in line
    waive(slow, good, waiver("lost", check="foi"))
    done = slow.asked("lint")
    assert (done.code, done.codes) == (
        1, ["system.inventory-not-written", "waiver.matches-nothing"]
    )  # fmt: skip
    assert f"{path}: lost: match: " in done.err
