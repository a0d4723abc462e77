"""Plans and records that are damaged, doubled or another's: they are left out and named, and every
command answers from what is left."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import records
from click.testing import CliRunner, Result
from conftest import Testbed, fault_of, refused
from histories import NIGHT, line, own_cache_, results_, run, store, values_of  # noqa: F401
from plumbline.check import record
from plumbline.cli import main
from plumbline.history import index
from plumbline.history.history import History
from plumbline.operate import nightly
from plumbline.session import preflight, recovery
from test_baseline import remember

DEEP = "[" * 100_000 + "]" * 100_000


def plan_with(**fields: object) -> Callable[[Path], None]:
    """A plan with other fields."""

    def damage(folder: Path) -> None:
        path = folder / "plan.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return damage


def record_with(**fields: object) -> Callable[[Path], None]:
    """A record with other fields; ``fom`` are those of its one figure."""

    def damage(folder: Path) -> None:
        path = folder / "records.jsonl"
        good = json.loads(path.read_text())
        more = copy.deepcopy(fields)
        good["foms"][0] |= more.pop("fom", {})
        path.write_text(json.dumps(good | more) + "\n")

    return damage


def raw(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """A file with other bytes."""

    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def replaced(name: str, by: Callable[[Path], None]) -> Callable[[Path], None]:
    """A file that something else stands for."""

    def damage(folder: Path) -> None:
        (folder / name).unlink()
        by(folder / name)

    return damage


def copied(folder: Path) -> None:
    """The folder is a copy of another session's."""
    shutil.rmtree(folder)
    shutil.copytree(good_of(folder), folder)


def linked(folder: Path) -> None:
    """The folder is a link to another session's."""
    shutil.rmtree(folder)
    folder.symlink_to(good_of(folder).name)


def good_of(folder: Path) -> Path:
    return folder.parent / "20261101T000000Z-000001"


#: Kind -> what is done to a session of one record.
DAMAGE: dict[str, Callable[[Path], None]] = {
    "plan: system a list": plan_with(system=["testbed"]),
    "plan: system an object": plan_with(system={"name": "testbed"}),
    "plan: system of 3 MB": plan_with(system="x" * 3_000_000),
    "plan: system with NUL": plan_with(system="test\0bed"),
    "plan: half of a surrogate pair": plan_with(extras={"by": "M\udcfcller"}),
    "plan: extras a list": plan_with(extras=["a=b"]),
    "plan: extras of numbers": plan_with(extras={"a": 1}),
    "plan: cases a list": plan_with(cases=["a"]),
    "plan: a case that says nothing": plan_with(cases={"a": {}}),
    "plan: a case that is none": plan_with(cases={"a": 3}),
    "plan: schema in quotes": plan_with(schema="3"),
    "plan: half": raw("plan.json", lambda data: data[:-20]),
    "plan: no UTF-8": raw("plan.json", lambda data: data.replace(b'"extras": {}', b'"\xfc": {}')),
    "plan: deep": raw("plan.json", lambda data: data.replace(b"{}", DEEP.encode(), 1)),
    "plan: empty": raw("plan.json", lambda data: b""),
    "plan: a link": replaced("plan.json", lambda path: path.symlink_to(good_of(path.parent))),
    "plan: a pipe": replaced("plan.json", os.mkfifo),
    "plan: a folder": replaced("plan.json", Path.mkdir),
    "record: size 8.7": record_with(fom={"size": 8.7}),
    "record: size beyond 64 bits": record_with(fom={"size": 2**70}),
    "record: value in quotes": record_with(fom={"value": "1.5"}),
    "record: value true": record_with(fom={"value": True}),
    "record: value NaN": record_with(fom={"value": float("nan")}),
    "record: samples in quotes": record_with(fom={"samples": ["1.5"]}),
    "record: no sample": record_with(fom={"samples": []}),
    "record: verdict green": record_with(fom={"verdict": "green"}),
    "record: schema in quotes": record_with(schema="3"),
    "record: schema true": record_with(schema=True),
    "record: of a newer schema": record_with(schema=99),
    "record: result perfect": record_with(result="perfect"),
    "record: check with NUL": record_with(check="fio\0"),
    "record: half of a surrogate pair": record_with(reason="x\ud800"),
    "record: system of 3 MB": record_with(system="x" * 3_000_000),
    "record: system null": record_with(system=None),
    "record: conditions a list": record_with(conditions=[]),
    "record: figures an object": record_with(foms={"a": 1}),
    "record: attempt -1": record_with(attempt=-1),
    "record: attempt beyond 32 bits": record_with(attempt=2**40),
    "record: time of no day": record_with(time="2026-13-45T00:00:00Z"),
    "record: an unknown field": record_with(more={}),
    "record: another session's": record_with(session="20261101T000000Z-000001"),
    "record: half": raw("records.jsonl", lambda data: data[:300]),
    "record: zeros": raw("records.jsonl", lambda data: bytes(len(data))),
    "record: no UTF-8": raw("records.jsonl", lambda data: data.replace(b"fio", b"\xff", 1)),
    "record: deep": raw(
        "records.jsonl", lambda data: data.replace(b'"hosts": {}', b'"hosts": ' + DEEP.encode())
    ),
    "record: twice": raw("records.jsonl", lambda data: data * 2),
    "records: a dangling link": replaced("records.jsonl", lambda path: path.symlink_to("gone")),
    "records: a folder": replaced("records.jsonl", Path.mkdir),
    "records: a pipe": replaced("records.jsonl", os.mkfifo),
    "a copy of a session": copied,
    "a link to a session": linked,
}


def drawn(number: int) -> list[str]:
    """So many kinds of damage, each at least once, the same ones every time."""
    chance = random.Random(16)
    kinds = [*DAMAGE, *chance.choices([*DAMAGE], k=number - len(DAMAGE))]
    chance.shuffle(kinds)
    return kinds


#: Commands whose answer is about the sessions of one system; the last words are its name.
COMMANDS = {
    "list": ["history", "list", "--format=json", "--system"],
    "nodes": ["history", "nodes", "--system"],
    "links": ["history", "links", "--system"],
    "history export": ["history", "export", "--system"],
    "show": ["show", "--format=json", "--system"],
    "trend": ["trend", "--format=json", "--system"],
    "compare": [
        "compare",
        "2026-11-01..2026-11-10",
        "2026-11-11..2026-11-20",
        "--format=json",
        "--system",
    ],
    "screen": ["screen", "--format=json", "--system"],
    "waive": ["waive", "--format=json", "--system"],
    "baseline": ["baseline", "--dry-run", "--by=x", "--format=csv"],
    "export": ["export", "--format=markdown", "--system"],
    "report": ["report", "--out=pages", "--system"],
}


@pytest.mark.holds("records")
def test_a_hundred_damaged_sessions_among_twenty(testbed: Testbed, monkeypatch: pytest.MonkeyPatch):
    """Every command answers as it did without them, and names each of them. A go is none."""
    for number in range(1, 21):
        remember(testbed, number, 2000 + number % 3)
    monkeypatch.chdir(testbed.folder)
    testbed.enter(monkeypatch)

    def answers() -> dict[str, Result]:
        return {
            name: CliRunner().invoke(main, [*words, testbed.name])
            for name, words in COMMANDS.items()
        }

    before = answers()
    names = {}
    for number, kind in enumerate(drawn(100)):
        session = f"20261201T{number // 60:02}{number % 60:02}00Z-{number:06x}"
        about = {"system": "other", "time": f"2026-12-01T{number // 60:02}:{number % 60:02}:00Z"}
        line = records.case(session, **about, foms=[records.figure(1.0)], check="fio")
        folder = testbed.results / "sessions" / session
        folder.mkdir()
        (folder / "plan.json").write_text(records.plan(session, [line["case"]], system="other"))
        (folder / "records.jsonl").write_text(json.dumps(line) + "\n")
        (folder / "end.json").write_text('{"code": 0, "notes": [], "faults": []}')
        DAMAGE[kind](folder)
        names[session] = kind
    assert len(names) == 100
    for name, found in answers().items():
        assert found.exception is None or isinstance(found.exception, SystemExit), name
        if name == "compare":
            now, then = json.loads(found.stdout), json.loads(before[name].stdout)
            assert (then["verdict"], now["verdict"]) == ("go", "not enough data")
            assert now["figures"] == then["figures"]
        elif name != "report":
            assert found.stdout == before[name].stdout, name
        assert found.exit_code == {"export": 0}.get(name, 2), (name, found.output)
        missed = {names[session] for session in names if session not in found.stderr}
        assert not missed, name
    page = Path("pages/index.html").read_text()
    assert not {names[session] for session in names if session not in page}
    # The night's page has how many, and the first of them.
    part = nightly.parts.trend(testbed.name, "20261120T000000Z-000014")
    assert part.code == 2 and part.message.count("skipped: ") == 5
    assert f" {len(before['list'].stderr.splitlines()) + 95} more" in part.message


# -- doubled, or lost ---------------------------------------------------------------------------


@pytest.mark.holds("records")
def test_a_copied_session_counts_once(results: Path):
    folder = store(results, line())
    shutil.copytree(folder, folder.with_name(f"{NIGHT}.bak"))
    folder.with_name("linked").symlink_to(folder.name)
    assert values_of(results) == [10.0]
    with History(results) as found:
        assert [row.session for row in found.sessions()] == [NIGHT]
        named = sorted(fault.rpartition("sessions/")[2].split(":")[0] for fault in found.faults)
    assert named == [f"{NIGHT}.bak/plan.json", "linked'"]
    # Without a plan, its records say whose they are.
    (folder.with_name(f"{NIGHT}.bak") / "plan.json").unlink()
    assert values_of(results) == [10.0]
    shutil.rmtree(folder.with_name(f"{NIGHT}.bak"))
    folder.with_name("linked").unlink()
    assert run("list", "--from", results).code == 0


def test_a_doubled_line_counts_once(results: Path):
    """A retry is another attempt, and counts."""
    folder = store(results, line(), line(), line(attempt=1))
    with History(results) as found:
        assert [case.attempt for case in found.cases()] == [0, 1]
        (fault,) = found.faults
        assert fault.startswith(f"{folder / 'records.jsonl'}:2: case: ")
        assert found.notes == []


def test_missing_records_of_a_session_that_has_ended_are_noted(results: Path):
    """Once there is an end, which is noticed; a session without one may still run."""
    folder = store(results, line(), plan=3)
    with History(results) as found:
        found.cases()
        assert found.notes == []
    (folder / "end.json").write_text('{"code": 2, "notes": [], "faults": []}')
    with History(results) as found:
        found.cases()
        (note,) = found.notes
        assert note.startswith(f"{NIGHT}: ") and "2 of 3 " in note
        assert found.faults == []
    done = run("list", "--from", results)
    assert (done.code, note in done.err) == (0, True)


def test_a_name_that_stands_twice_in_a_line_is_one_value(results: Path):
    """The one that was compared with the schema."""
    twice = records.dumps(line()).replace('"value":', '"value":"99","value":') + "\n"
    store(results, twice, name=NIGHT)
    assert values_of(results) == [10.0]


# -- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extras", ["maintenance", "by=M\udcfcller", "by=a\0", "by=\x1b[31m", "b\ny=x"]
)
def test_extras_that_cannot_be_stored_are_refused(extras: str):
    words = ["reframe", "-r", f"--session-extras={extras}"]
    fault_of(lambda: preflight.extras(words), "input.wrong-option")
    assert preflight.extras(["--session-extras=by=Müller"]) == {"by": "Müller"}


@pytest.mark.parametrize("option", ["--session-extras", "--session-extra", "--ses"])
def test_extras_of_a_shortened_option(option: str):
    """Which ReFrame accepts."""
    for words in ([option, "by=me"], [f"{option}=by=me"]):
        assert preflight.extras(["reframe", "-r", "--setvar", "a=b", *words]) == {"by": "me"}


@pytest.mark.holds("environment")
def test_a_run_with_extras_that_are_no_utf8_does_not_start(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", "--session-extras", os.fsdecode(b"by=M\xfcller"))
    refused(done, "[input.wrong-option]")


def test_what_no_reader_takes_is_spelled_out():
    """A record is read back, whatever a program or a scheduler said."""
    assert record.create(line(reason="a\0b\udcfcc")).reason == r"a\x00b\udcfcc"


def test_a_killed_session_with_a_damaged_record_is_cleaned_up(results: Path):
    folder = store(results, line(), '{"half":\n', plan=2)
    (folder / "running").touch()
    reported: list[str] = []
    recovery.clean_up(results, "cancel", reported.append)
    assert any(f"{folder / 'records.jsonl'}:2: " in message for message in reported)
    assert json.loads((folder / "end.json").read_text())["code"] == 2
    kept = [f.result for f in record.read(folder / "records.jsonl", reported.append)]
    assert kept == ["pass", "unfinished"]


def test_the_docs_have_the_schema_of_a_record():
    """`python -m plumbline.check.record > docs/record.schema.json` renews it."""
    path = Path(__file__).parents[1] / "docs" / "record.schema.json"
    assert json.loads(path.read_text()) == record.schema()


def test_time_grows_with_the_lines_alone(tmp_path: Path):
    """Also of lines that are all damaged."""

    def seconds(number: int) -> float:
        folder = tmp_path / f"{number}"
        store(folder, '{"half":\n' * number, name=NIGHT)
        began = time.process_time()
        index.open_index(folder, lambda line: None)[0].close()
        return time.process_time() - began

    assert seconds(40_000) < 10 * seconds(10_000)


FOREIGN = """\
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Foreign(rfm.RunOnlyRegressionTest):
    version = variable(int, value=5)
    build = variable(list, value=[1])
    num_samples = variable(str, value="three")
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "echo"

    @sanity_function
    def validate(self):
        return sn.assert_true(True)
"""


def test_a_check_may_fill_in_anything(testbed: Testbed):
    """One that is not ours may name its parts as it likes; what fits no record is invalid."""
    testbed.environment("one", "imb")
    path = testbed.check_file("odd", num_samples=1, num_warmups=0)
    odd = "    def doubts(self):\n        self.result.build['jobs'] = 7\n        return []\n"
    path.write_text(f"{path.read_text()}\n{odd}")
    foreign = testbed.folder / "foreign.py"
    foreign.write_text(FOREIGN)
    done = testbed.plumbline("run", "-c", path, "-c", foreign)
    assert done.code == 1, done.output
    fields = done.record("Foreign")
    assert (fields["version"], fields["build"], fields["samples"]) == (None, {}, None)
    fields = done.record("odd")
    assert (fields["result"], fields["code"]) == ("invalid", "check.wrong-result")
    assert fields["foms"] == [] and "build.jobs: " in fields["reason"]
    assert testbed.plumbline("history", "list").code == 0


def test_a_session_whose_plan_is_damaged_is_not_the_newest(testbed: Testbed):
    """Where none is named; the named one is refused, as is one with a damaged end."""
    first, second = [remember(testbed, number, 100.0) for number in (1, 2)]
    folder = testbed.results / "sessions" / second
    (folder / "plan.json").write_text('{"cases": []}')
    done = testbed.plumbline("export")
    assert done.code == 0 and f"session {first}" in done.out and second in done.err
    assert testbed.plumbline("export", second).code == 2
    (folder.with_name(first) / "end.json").write_text('{"faults": {}}')
    done = testbed.plumbline("export", first)
    assert (done.code, done.out, done.codes) == (2, "", ["history.damaged"])
    assert "end.json" in done.err
