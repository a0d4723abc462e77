"""`plumbline refs`: rows found, explained, and held against the checks."""

import csv
import io
import json

import pytest
from click.testing import CliRunner
from plumbline import cli
from plumbline.core import paths
from plumbline.reference.tables import Tables, load


@pytest.fixture(scope="module")
def tables() -> Tables:
    return load(paths.reference())


def refs(*arguments: str):
    return CliRunner().invoke(cli.main, ["refs", *arguments])


def test_every_measured_number_is_found_by_its_value(tables):
    """By the printed number and the system, each row is in the list."""
    from plumbline.output import query as finder
    from plumbline.reference import lookup

    references = lookup.References(tables)
    for row in references.rows:
        cells = tables.printed[row.id]
        found = finder.select(references, {"system": row.system}, [cells["value"]])
        assert row in found, row.id


def test_listing_as_text_csv_and_json():
    """The same rows in each form, the numbers as printed."""
    done = refs("861.40", "--kind", "measured", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert (row["id"], row["value"]) == ("sierra-babelstream-memory-bandwidth-per-gpu", "861.40")
    assert json.loads(refs("861.40", "--kind", "measured", "--format", "json").stdout) == [row]
    text = refs("861.40", "--kind", "measured").stdout
    assert row["id"] in text
    assert text.endswith("plumbline: 1 of 922 references\n")


def test_why_tells_the_printed_variation_that_is_a_tolerance():
    """Of the row that has it, and of the row that prints it."""
    bounded = refs("--why", "peak-stream-triad-44c").stdout
    assert "[250.523, open] GB/s" in bounded
    assert "9% (printed: peak-stream-run-variation)" in bounded and "1,000 trials" in bounded
    printed = refs("--why", "peak-stream-run-variation").stdout
    assert "it is the tolerance of peak-stream-copy-*" in printed


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
    rows = list(csv.DictReader(io.StringIO(refs(*arguments, "--format", "csv").stdout)))
    assert len(rows) == ids


def test_nothing_found_is_exit_2():
    assert refs("nonesuch").exit_code == 2


def test_why_of_each_row(tables):
    """Each row can be explained: source, locator, what it asserts and by which rule."""
    from plumbline.output import query as finder
    from plumbline.reference import lookup

    references, known = lookup.References(tables), finder.misprints(paths.reference())
    for name, row in tables.rows.items():
        text = "\n".join(finder.why(references, name, known))
        assert row.locator in text
        assert tables.sources[row.source].title in text
        assert "asserts:" in text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sierra-babelstream-memory-bandwidth-per-gpu", "[818.33, open] GB/s"),
        ("summit-osu-latency-gpu-a", "lower is better"),
        ("trinity-babelstream-memory-bandwidth-all-cores-peak", "nothing: bound makes"),
        ("sawtooth-babelstream-memory-bandwidth-all-cores-peak", "ceiling 281.5 GB/s"),
        ("reedbush-u-hpcg-performance-full", "16.6"),
        ("summit-nvlink-d2d-bandwidth-peak", "2 x the peak, placements gpu-a: osu/bibandwidth"),
        ("summit-commscope-host-device-bandwidth", "ceiling:   50.5 GB/s: summit-nvlink-gpu-link"),
    ],
)
def test_why(name, says):
    done = refs("--why", name)
    assert done.exit_code == 0
    assert says in done.stdout


def test_why_of_no_row_names_near_ones():
    done = refs("--why", "sawtooth-babelstream")
    assert done.exit_code == 2
    assert "did you mean sawtooth-babelstream-memory-bandwidth" in done.output
    done = refs("--why", "sawtooth-babelstream-memory-bandwith")
    assert "did you mean sawtooth-babelstream-memory-bandwidth" in done.output


def test_unused_rows_are_those_that_no_check_declares():
    """IMB's rows are declared by checks/imb.py, the applications' by none."""
    unused = refs("--unused", "--kind", "measured", "--format", "csv")
    ids = {row["id"] for row in csv.DictReader(io.StringIO(unused.stdout))}
    assert "reedbush-u-imb-pingpong-latency-hpcx-ucx" not in ids
    assert "summit-umt2013-fom-4gpus-1t" in ids


def test_why_in_a_folder_of_a_sites_own(testbed):
    """It has no list of the papers' misprints."""
    metric = {"benchmark": "imb", "metric": "pingpong_latency", "message_size": 8, "unit": "us"}
    testbed.refer({"id": "own", "placement": "on-socket", "value": 1.04} | metric)
    done = testbed.plumbline("refs", "--why", "own")
    assert done.code == 0 and "asserts:   [" in done.out, done.output
