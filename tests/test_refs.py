"""`plumbline refs`: rows found, explained, and compared with the checks."""

import csv
import io
import json
import re

import pytest
from conftest import Done, asked
from plumbline.core import paths
from plumbline.output import reference_rows
from plumbline.reference import lookup
from plumbline.reference.lookup import References
from plumbline.reference.row import Case


@pytest.fixture(scope="module")
def references() -> References:
    return lookup.loaded(paths.reference())


def refs(*arguments: str) -> Done:
    return asked("refs", *arguments)


def rows_of(*arguments: str) -> list[dict]:
    return [*csv.DictReader(io.StringIO(refs(*arguments, "--format", "csv").out))]


def test_every_measured_number_is_found_by_its_value(references):
    """By the printed number and the system, each row is in the list."""
    for row in references.rows:
        cells = references.tables.printed[row.id]
        found = reference_rows.select(references, {"system": row.system}, [cells["value"]])
        assert row in found, row.id


def test_listing_as_text_csv_and_json(references):
    """The same rows in each form, the numbers as printed."""
    (row,) = rows_of("861.40", "--kind", "measured")
    assert (row["id"], row["value"]) == ("sierra-babelstream-memory-bandwidth-per-gpu", "861.40")
    assert json.loads(refs("861.40", "--kind", "measured", "--format", "json").out) == [row]
    text = refs("861.40", "--kind", "measured").out
    assert row["id"] in text
    assert f" 1 of {len(references.rows)} " in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["--system", "xt?", "--benchmark", "stream", "--placement", "numa-0-0"], 1),
        (["--source", "pmbs23", "--placement", "gpu-d"], 6),
        (["sharp", "--benchmark", "osu", "--metric", "barrier_latency"], 3),
    ],
)
def test_filters(arguments, ids):
    """Options take shell patterns, words any cell."""
    assert len(rows_of(*arguments)) == ids


def test_ceilings_of_figures_without_a_row(references):
    """No paper prints OSU over NCCL; peaks of links cap it."""
    done = refs("xccl", "--system", "polaris", "--placement", "gpus-on-node")
    assert done.code == 2 and f" 0 of {len(references.rows)} " in done.out
    cells = [re.split(r"\s{2,}", line) for line in done.out.splitlines()]
    (nvlink,) = (row for row in cells if row[0] == "polaris-nvlink-link-bandwidth-peak")
    assert nvlink[2:] == ["25", "GB/s", "24", "gpus-on-node",
                          "osu/xccl_allgather_bandwidth and 11 more"]  # fmt: skip
    assert rows_of("xccl") == []
    assert len(refs("xccl_latency").out.split("plumbline: ")) == 2


def test_ceilings_are_those_of_the_verdicts(references):
    """For each figure and placement that the listing shows, a test case there has a ceiling."""
    for cells in reference_rows.capping(references, {"metric": "xccl_*"}, []):
        row = references.tables.rows[cells["id"]]
        for placement in cells["placements"].split(", "):
            case = Case(row.system, "", row.toolchain, "osu", placement.replace("?", "a"), 1, 1,
                        row.conditions)  # fmt: skip
            metric = cells["caps"].split()[0].partition("/")[2]
            assert references.ceiling(case, metric, 2**20) is not None, cells


def test_nothing_found_is_exit_2():
    assert refs("nonesuch").code == 2


def test_why_of_each_row(references):
    """Each row can be explained: source, locator, what it asserts and by which rule."""
    known = reference_rows.misprints(paths.reference())
    for name, row in references.tables.rows.items():
        parts = dict(reference_rows.explain(references, name, known))
        assert parts["source"][1] == row.locator
        assert references.tables.sources[row.source].short in parts["source"][0]
        assert parts["asserts"]


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("sierra-babelstream-memory-bandwidth-per-gpu", ["[818.33, open] GB/s"]),
        ("summit-osu-latency-gpu-a", ["lower is better"]),
        ("trinity-babelstream-memory-bandwidth-all-cores-peak", ["nothing: bound makes"]),
        ("sawtooth-babelstream-memory-bandwidth-all-cores-peak", ["ceiling 281.505 GB/s"]),
        ("reedbush-u-hpcg-performance-full", ["16.6"]),
        (
            "summit-nvlink-d2d-bandwidth-peak",
            ["2 x the peak, placements gpu-a: osu/bibandwidth"],
        ),
        (
            "summit-commscope-host-device-bandwidth",
            ["ceiling:   50.5 GB/s: summit-nvlink-gpu-link"],
        ),
        # The printed variation is the tolerance of the first; the second prints it.
        ("peak-stream-triad-44c", ["[250.523, open] GB/s", "9% (printed: peak-stream-run-var"]),
        ("peak-stream-run-variation", ["tolerance of peak-stream-copy-*"]),
        # Of a plain check; no table has it.
        ("check", ["docs/own-checks.md"]),
    ],
)
def test_why(name, printed):
    done = refs("--why", name)
    assert done.code == 0
    assert [part for part in printed if part not in done.out] == []


@pytest.mark.parametrize("name", ["sawtooth-babelstream", "sawtooth-babelstream-memory-bandwith"])
def test_why_of_no_row_names_similar_ones(name):
    done = refs("--why", name)
    assert (done.code, done.codes) == (2, ["input.unknown-name"])
    assert "sawtooth-babelstream-memory-bandwidth" in done.err


def test_unused_rows_are_those_that_no_check_declares():
    """IMB's rows are declared by checks/imb.py, the applications' by none."""
    ids = {row["id"] for row in rows_of("--unused", "--kind", "measured")}
    assert "reedbush-u-imb-pingpong-latency-hpcx-ucx" not in ids
    assert "summit-umt2013-fom-4gpus-1t" in ids


def test_why_in_a_folder_of_a_sites_own(testbed):
    """It has no list of the papers' misprints."""
    metric = {"benchmark": "imb", "metric": "pingpong_latency", "message_size": 8, "unit": "us"}
    testbed.refer({"id": "own", "placement": "on-socket", "value": 1.04} | metric)
    done = testbed.asked("refs", "--why", "own")
    assert done.code == 0 and "asserts:   [" in done.out
