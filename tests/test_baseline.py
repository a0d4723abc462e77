"""`plumbline baseline`: from a site's own records to references that the next run asserts."""

from __future__ import annotations

import csv
import getpass
import json
import math
import re
from pathlib import Path

import pytest
import records
import scipy
from conftest import STANDINS, Done, Testbed
from plumbline.analysis import baseline, baseline_diff
from plumbline.check import record, states
from plumbline.reference import waivers
from reference_tables import CASE, LATENCY, registers
from reference_tables import references as of_rows

FIO = ["-n", "fio.*write", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]
CHECK = "fio %placement=all-cores %direction=write"
CONDITIONS = {
    "access": "sequential",
    "block": "1MiB",
    "direct": "1",
    "filesystem": "scratch",
    "jobs": "1",
    "size": "8MiB",
}


def figure(value: float, **fields: object) -> dict:
    """fio's figure of merit as a record has it."""
    return records.figure(value, **{"metric": "write_bandwidth", **fields})


def remember(testbed: Testbed, number: int, value: float | None, hour: int = 0, **fields) -> str:
    """Writes a session with one record of fio's bandwidth, or one that measured nothing."""
    session = f"202611{number:02}T{hour:02}0000Z-{number:06x}"
    defaults = {
        "system": testbed.name,
        "partition": "node",
        "environment": "disk-io",
        "check": CHECK,
        "case": f"0123abcd @{testbed.name}:node+disk-io",
        "benchmark": "fio",
        "program": "fio",
        "version": "fio-3.33",
        "conditions": CONDITIONS,
        "tags": ["smoke"],
        "jobid": "1",
        "build": {"sha256": "a" * 64},
        "tasks": [{"rank": 0, "host": "n1", "cpus": "0-1", "given": "", "gpus": ""}],
        "foms": [] if value is None else [figure(value)],
    }
    line = records.case(session, f"2026-11-{number:02}T00:00:10Z", **{**defaults, **fields})
    about = {name: line[name] for name in ("system", "partition", "environment", "check")}
    plan = records.plan(session, [line["case"]], **about)
    records.write(testbed.results, [line], plan, ended=True)
    return session


def remember_all(testbed: Testbed, numbers: tuple[int, ...], value: float | None, **fields) -> None:
    for number in numbers:
        remember(testbed, number, value, **fields)


def path_of(testbed: Testbed) -> Path:
    """The table of a baseline."""
    return testbed.reference / f"{testbed.name}.csv"


def table(testbed: Testbed) -> list[dict]:
    with path_of(testbed).open(newline="") as file:
        return list(csv.DictReader(file))


def make(testbed: Testbed, *options: str) -> Done:
    """Runs ``plumbline baseline``."""
    return testbed.asked("baseline", testbed.name, *options)


def changes(testbed: Testbed, *options: str) -> tuple[Done, dict]:
    """The same, with what it prints as JSON."""
    done = make(testbed, "--format=json", *options)
    return done, json.loads(done.out)


#: What the sessions 1, 2, ... are -> the code of what is skipped. A session is a value, or a value
#: and what else its record has.
NEW = {"build": {"sha256": "b" * 64}}
LARGE = {"conditions": CONDITIONS | {"size": "4096MiB"}}
WAIVED = {"result": "waived", "waiver": "w1",
          "foms": [figure(1000.0, verdict="waived", waiver="w1")]}  # fmt: skip
SKIPPED = {
    "two": ([320, 320], "too-few-sessions"),
    "one that measured nothing": ([320, 320, (None, {"result": "skip"})], "too-few-sessions"),
    "one of another system": ([320, 320, (320, {"system": "other"})], "too-few-sessions"),
    "one of another build": ([300, 300, 300, (500, NEW)], "too-few-sessions"),
    "one of other conditions": ([(2000, LARGE), (2000, LARGE), 2000], "too-few-sessions"),
    "without hosts": ([(2000, {"tasks": []})] * 3, "no-hosts"),
    "with some noise": ([1000, 1030, 970], "too-noisy-yet"),
    "with much noise": ([1000, 2000, 3000] * 9, "too-noisy"),
    "waived": ([(None, WAIVED)] * 3, "waived"),
}


@pytest.mark.parametrize(("sessions", "code"), SKIPPED.values(), ids=SKIPPED)
def test_sessions_that_make_no_baseline(testbed: Testbed, sessions: list, code: str):
    for number, session in enumerate(sessions, 1):
        value, fields = session if isinstance(session, tuple) else (session, {})
        remember(testbed, number, value, **fields)
    done = make(testbed)
    assert (done.code, done.codes) == (2, [f"baseline.{code}", "history.too-few-sessions"])
    assert not path_of(testbed).exists()


def test_a_session_counts_once(testbed: Testbed):
    remember_all(testbed, (1, 2), 320)
    again = {"check": f"{CHECK} %.repeat_no=1", "case": "1 @testbed:node+disk-io"}
    remember(testbed, 2, 320, **again)
    assert make(testbed).codes[0] == "baseline.too-few-sessions"


def test_three_give_the_median_and_a_spread_that_the_next_run_asserts(testbed: Testbed):
    testbed.environment("disk", "fio")
    sessions = [remember(testbed, n, value) for n, value in enumerate([1995, 2005, 2000], 1)]
    testbed.refer(
        {"id": "printed", "benchmark": "fio", "metric": "write_bandwidth", "value": 1500,
         "unit": "MB/s", "source": "paper", "toolchain": "disk-io", "placement": "all-cores"},
        name="paper.csv",
    )  # fmt: skip
    with (testbed.reference / "sources.yaml").open("a") as file:
        file.write("paper:\n  title: A paper\n  authors: Someone\n  year: 2000\n")
    # The exceptions are of rows of the shipped papers.
    (testbed.reference / "tolerance.yaml").write_text("exceptions: []\n")
    done = make(testbed)
    assert done.code == 0, done.output
    (row,) = table(testbed)
    assert (row["source"], row["system"], row["toolchain"]) == ("site", "testbed", "disk-io")
    assert (row["benchmark"], row["metric"]) == ("fio", "write_bandwidth")
    assert (row["placement"], row["nodes"], row["ppn"]) == ("all-cores", "1", "1")
    assert (float(row["value"]), row["unit"], row["statistic"]) == (2000, "MB/s", "median")
    # The standard deviation is 5. Of three sessions it says little: Student's t with two degrees of
    # freedom lets one in a thousand lie so far out, and the median of three is uncertain itself.
    far = scipy.stats.t.isf(1e-3, 2) * math.sqrt(1 + math.pi / 6) * 5
    assert float(row["spread"]) == pytest.approx(far / 3, rel=5e-3)
    assert " 3 sessions 5," in row["note"]
    assert (row["accepted_by"], row["accepted_on"]) == (getpass.getuser(), str(waivers.today()))
    assert row["sessions"].split() == sessions
    assert row["date"] == "2026-11-03"
    # The stand-in prints 1973.79 MB/s. The site's own row wins over the printed one.
    after = testbed.plumbline("run", *FIO)
    assert after.code == 0, after.output
    (fom,) = after.record("direction=write")["foms"]
    assert (fom["verdict"], fom["reference"]) == ("pass", row["id"])
    assert fom["lower"] == pytest.approx(2000 - far, rel=5e-3)
    assert fom["upper"] is None
    # And a worse one fails.
    worse = testbed.folder / "worse"
    worse.mkdir()
    text = (STANDINS / "outputs" / "write.out").read_text()
    for printed, less in (
        ('"bw_bytes" : 1973790117', '"bw_bytes" : 1500000000'),
        ('"bw" : 1927529', '"bw" : 1464843'),
        ('"runtime" : 34', '"runtime" : 45'),
    ):
        assert text.count(printed) == 1
        text = text.replace(printed, less)
    (worse / "write.out").write_text(text)
    testbed.environments.clear()
    testbed.environment("disk", "fio", worse)
    failed = testbed.plumbline("run", *FIO)
    assert failed.code == 1
    fields = failed.record("direction=write")
    (fom,) = fields["foms"]
    assert (fields["result"], fields["code"]) == ("fail", "figure.outside-bounds")
    assert (fom["value"], fom["verdict"], fom["reference"]) == (1500, "fail", row["id"])


def test_another_build_is_another_machine(testbed: Testbed):
    remember_all(testbed, (1, 2, 3), 300)
    remember_all(testbed, (4, 5, 6), 500, **NEW)
    assert make(testbed).code == 0
    (row,) = table(testbed)
    assert float(row["value"]) == 500
    assert len(row["sessions"].split()) == 3


def test_an_existing_table_is_loosened_only_when_accepted(testbed: Testbed):
    remember_all(testbed, (1, 2, 3), 300)
    path = path_of(testbed)
    shown = make(testbed, "--dry-run", "--format=csv")
    assert shown.code == 0 and not path.exists()
    assert make(testbed).code == 0
    first = path.read_text()
    assert shown.out == first
    # What would be looser stops it, whether or not it is a dry run.
    remember_all(testbed, (4, 5, 6, 7), 200)
    assert make(testbed, "--last=4", "--accept", "--dry-run").code == 0
    for more in ([], ["--dry-run"], ["--format=json"]):
        done = make(testbed, "--last=4", *more)
        assert done.code == 1 and str(path) in done.err and "--accept" in done.err
        assert path.read_text() == first
    result = json.loads(done.out)
    assert result["written"] is False
    (change,) = result["changes"]
    assert (change["change"], change["value"], change["upper"]) == (
        "loosened", [300, 200], [None, None],
    )  # fmt: skip
    assert change["lower"] == pytest.approx([285, 190])
    taken = make(testbed, "--last=4", "--accept", "--by=A. Clerk")
    assert taken.code == 0
    (line,) = [line for line in taken.out.splitlines() if line.startswith("loosened ")]
    assert "300 -> 200 MB/s" in line and "[285, open] -> [190, open]" in line
    (row,) = table(testbed)
    assert (float(row["value"]), row["accepted_by"]) == (200, "A. Clerk")
    # What is tighter needs nobody's word; what does not change stays as it is, with its taker.
    second = path.read_text()
    same, result = changes(testbed, "--last=4")
    assert (same.code, result["written"]) == (0, False)
    assert [change["change"] for change in result["changes"]] == ["unchanged"]
    assert path.read_text() == second
    remember_all(testbed, (8, 9, 10, 11), 400)
    done, result = changes(testbed, "--last=4")
    (change,) = result["changes"]
    assert (done.code, change["change"], change["value"]) == (0, "tightened", [200, 400])
    (row,) = table(testbed)
    assert (float(row["value"]), row["accepted_by"]) == (400, getpass.getuser())


def test_a_row_is_dropped_only_when_that_is_accepted(testbed: Testbed):
    remember_all(testbed, (1, 2, 3), None, foms=[figure(100.0), figure(50.0, size=8)])
    assert make(testbed).code == 0
    path = path_of(testbed)
    first = path.read_text()
    # A row that somebody wrote, without sessions, stays as it was printed.
    cells = dict(table(testbed)[0])
    cells |= {"id": "by-hand", "metric": "read_bandwidth", "value": "70.0", "spread": "",
              "sessions": "", "note": "ours", "accepted_by": "", "accepted_on": ""}  # fmt: skip
    path.write_text(first + ",".join(cells.values()) + "\n")
    remember_all(testbed, (4, 5, 6), 100.0)
    done, result = changes(testbed, "--last=3")
    assert done.code == 1
    gone, same = sorted(result["changes"], key=lambda change: change["change"])
    assert (gone["change"], gone["value"], same["change"]) == ("gone", [50, None], "unchanged")
    assert make(testbed, "--last=3", "--accept").code == 0
    rows = {row["id"]: row for row in table(testbed)}
    assert len(rows) == 2
    assert (rows["by-hand"]["value"], rows["by-hand"]["note"]) == ("70.0", "ours")
    # Tables of before, which had not the columns, are read as well.
    text = path.read_text()
    kept = [
        {k: v for k, v in row.items() if not k.startswith("accepted")} for row in table(testbed)
    ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, kept[0])
        writer.writeheader()
        writer.writerows(kept)
    assert make(testbed, "--last=3").code == 0
    assert path.read_text() != text


def test_a_published_bound_is_loosened_only_when_that_is_accepted(testbed: Testbed):
    testbed.refer(
        {"id": "printed", "benchmark": "fio", "metric": "write_bandwidth", "value": 2000,
         "unit": "MB/s", "source": "site"},
        name="paper.csv",
    )  # fmt: skip
    remember_all(testbed, (1, 2, 3), 1950)
    done, result = changes(testbed)
    assert done.code == 1
    (change,) = result["changes"]
    assert change["lower"] == pytest.approx([1900, 1852.5])
    assert make(testbed, "--accept").code == 0
    assert len(table(testbed)) == 1


@pytest.mark.parametrize(
    ("value", "kind"), [(8.0, "tightened"), (12.0, "loosened"), (10.0, "moved")]
)
def test_bounds_of_a_latency(tmp_path: Path, value: float, kind: str):
    references = of_rows(registers(tmp_path), LATENCY | {"value": "10.0", "spread": "0.5"})
    (old,) = references.tables.rows.values()
    new = old.model_copy(update={"id": "own", "value": value})
    proposals = [baseline.Proposal(new, CASE, 0)]
    (change,) = baseline_diff.changes(proposals, references, tmp_path / "sys.csv")
    assert change.kind == kind


def test_few_sessions_make_wide_bounds_and_more_tighten_them(testbed: Testbed):
    """As wide as they must be for one false failure in a thousand, and no less."""
    for number, value in enumerate([1000, 1004, 996], 1):
        remember(testbed, number, value)
    first = make(testbed)
    assert first.code == 0, first.output
    wide = float(table(testbed)[0]["spread"])
    (message,) = [line for line in first.out.splitlines() if line.startswith("plumbline: 1 of 1 ")]
    more = int(NUMBERS.findall(message)[-1])
    for number in range(4, 4 + more):
        remember(testbed, number, 1000 + 4 * (-1) ** number)
    later = make(testbed)
    assert later.code == 0 and "plumbline: 1 of 1 " not in later.out
    tight = float(table(testbed)[0]["spread"])
    assert tight < wide / 2
    # Nor do more sessions than are asked for count.
    (row,) = csv.DictReader(make(testbed, "--last=3", "--dry-run", "--format=csv").out.splitlines())
    assert row["locator"] == "median of 3 sessions"


#: Whole numbers in a text.
NUMBERS = re.compile(r"\b\d+\b")


@pytest.mark.parametrize("nights", [1, 2])
def test_sessions_of_one_night_are_reported(testbed: Testbed, nights: int):
    """What varies between nights is not in the spread of one: still bounds, with a message."""
    for hour, value in enumerate([1000, 1004, 996]):
        remember(testbed, 1 + hour % nights, value, hour)
    done = make(testbed)
    assert done.code == 0 and len(table(testbed)) == 1, done.output
    assert ("[baseline.one-night]" in done.output) == (nights == 1)


def test_a_size_that_is_quiet_by_chance_has_no_row(testbed: Testbed):
    """As on a real machine: three sessions agreed at one size of IMB, and a later one failed."""
    for number, shift in enumerate([-0.06, 0.0, 0.06], 1):
        foms = [
            figure(1000 * (1 + (0.05 * shift if size == 128 else shift)), size=size)
            for size in (32, 64, 128, 256, 512)
        ]
        remember(testbed, number, None, foms=foms)
    done = make(testbed)
    assert done.codes.count("baseline.too-noisy-yet") == 1, done.output
    assert not path_of(testbed).exists()


def test_the_noise_of_another_placement_does_not_count(testbed: Testbed):
    """Of one case, sizes are quiet at the first placement. At the second, one is so by chance."""
    for number, shift in enumerate([-0.06, 0.0, 0.06], 1):
        foms = [
            figure(1000 * (1 + noise * shift), size=size, placement=placement)
            for placement, others in (("on-socket", 0.05), ("off-node", 1))
            for size, noise in ((32, others), (64, 0.05), (128, others))
        ]
        remember(testbed, number, None, foms=foms)
    assert make(testbed).code == 0
    rows = sorted((row["placement"], int(row["message_size"])) for row in table(testbed))
    assert rows == [("on-socket", 32), ("on-socket", 64), ("on-socket", 128)]


def test_the_first_attempt_counts(testbed: Testbed):
    """A session whose retry passed did not pass, and is no newer one than those that did."""
    for number in (1, 2, 3):
        remember(testbed, number, 300)
        remember(testbed, number, None, result="invalid", attempt=1)
    for number in range(4, 14):
        remember(testbed, number, 200, result="fail", **NEW)
        remember(testbed, number, 250, attempt=1, **NEW)
    assert make(testbed, "--last=3").code == 0
    (row,) = table(testbed)
    assert (float(row["value"]), row["date"]) == (300, "2026-11-03")


@pytest.mark.parametrize("line", ["{", "{}", '{"schema": 1}', "[]"])
def test_a_line_that_is_no_record_is_reported(testbed: Testbed, line: str):
    for number in (1, 2, 3):
        session = remember(testbed, number, 300)
    path = testbed.results / "sessions" / session / "records.jsonl"
    with path.open("a") as file:
        file.write(line + "\n")
    done = make(testbed)
    assert (done.code, done.codes) == (2, ["history.damaged"])
    assert f"{path}:2" in done.err


def test_a_system_without_records(testbed: Testbed):
    empty = testbed.asked("baseline", "nosuch")
    assert (empty.code, empty.codes) == (2, ["history.empty"])
    remember(testbed, 1, 300)
    done = testbed.asked("baseline", "nosuch")
    assert (done.code, done.codes) == (2, ["history.nothing-selected"])


#: Sessions 4 to 6, which measured something else than the first three, but are no baseline.
FAULTS = {
    "failed": {"result": "fail"},
    "above a ceiling": {
        "result": "fail",
        "foms": [figure(9e6, verdict="above-ceiling", ceiling=8000)],
    },
    "waived": WAIVED,
    "busy": {"conditions": CONDITIONS | {"busy": "yes"}},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_no_baseline_of_itself(testbed: Testbed, fault: str) -> None:
    remember_all(testbed, (1, 2, 3), 2000)
    remember_all(testbed, (4, 5, 6), 300, **FAULTS[fault])
    done = make(testbed)
    assert done.code == 0, done.output
    assert done.codes == [f"baseline.{fault}" for fault in [fault] if fault in ("waived", "busy")]
    (row,) = table(testbed)
    assert (row["value"], row["locator"]) == ("2000.0", "median of 3 sessions")
    assert "busy" not in row["conditions"]


@pytest.mark.parametrize("state", states.STATES)
def test_what_was_measured_with_warnings_is_no_baseline(testbed: Testbed, state: str) -> None:
    """Of faults on standard error, that is: see docs/verdicts.md on the other two states."""
    notice = {"state": state, "code": "a", "detail": "b", "figure": "", "source": ""}
    remember_all(testbed, (1, 2, 3), 2000)
    remember_all(testbed, (4, 5, 6), 300, warnings=[notice])
    done = make(testbed, "--last=3")
    assert done.code == 0, done.output
    (row,) = table(testbed)
    assert float(row["value"]) == (2000 if state == states.WARNINGS else 300)
    assert done.codes == (["baseline.warnings"] if state == states.WARNINGS else [])


def test_a_distribution_is_the_mean_of_all_runs(testbed: Testbed) -> None:
    """Its spread is that of single runs, of which it says how many there were (GPCNeT)."""
    runs = [[1.0, 3.0], [2.0, 6.0], [4.0, 8.0]]
    for number, samples in enumerate(runs, 1):
        foms = [
            figure(samples[0], metric="random_ring_latency", size=8, unit="us", samples=samples,
                   statistic="mean"),
            # Of such a spread no bandwidth could be too low.
            figure(samples[0], metric="random_ring_bandwidth", unit="MiB/s", samples=samples,
                   statistic="mean"),
        ]  # fmt: skip
        remember(testbed, number, None, foms=foms, benchmark="gpcnet", samples=2)
    done = make(testbed)
    assert done.code == 0, done.output
    assert len(table(testbed)) == 2
    (row,) = [row for row in table(testbed) if row["metric"] == "random_ring_latency"]
    assert (float(row["value"]), row["statistic"]) == (4.0, "mean")
    # Of 1, 2, 3, 4, 6 and 8 about 4: the squares are 9, 4, 1, 0, 4 and 16.
    assert float(row["spread"]) == pytest.approx((34 / 5) ** 0.5, rel=5e-3)
    assert "runs=6" in row["conditions"]
    assert row["locator"] == "mean of 3 sessions"


@pytest.mark.parametrize("schema", [1, 2])
def test_records_of_older_schemas_are_read_as_what_they_stand_for(
    testbed: Testbed, schema: int
) -> None:
    unknown = figure(3.0, metric="of_before", better="neither")
    session = remember(testbed, 1, None, foms=[figure(100.0), unknown])
    path = testbed.results / "sessions" / session / "records.jsonl"
    new = json.loads(path.read_text())
    old = json.loads(path.read_text()) | {"schema": schema}
    del old["waiver"]
    gone = ["better", "near_bound", "waiver"]
    if schema == 1:
        gone += ["location", "placement", "summary", "reason"]
        for task in old["tasks"]:
            del task["given"], task["gpus"]
    for fom in old["foms"]:
        for name in gone:
            del fom[name]
    path.write_text(json.dumps(old) + "\n")
    (read,) = record.read(path)
    assert read == record.validate(new)
    assert [fom.better for fom in read.foms] == ["higher", "neither"]


def test_a_figure_that_one_session_lacks_is_reported(testbed: Testbed) -> None:
    small = figure(50.0, size=8)
    for number in (1, 2, 3):
        more = [small] if number < 3 else []
        remember(testbed, number, 100.0, foms=[figure(100.0), *more])
    done = make(testbed)
    assert done.code == 0, done.output
    assert done.codes == ["baseline.not-in-each-session"] and "write_bandwidth_8" in done.err
    assert len(table(testbed)) == 1
