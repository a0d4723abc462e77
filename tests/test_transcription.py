"""The tables, compared with a second transcription that was made without them."""

import csv
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from plumbline.core import paths, units
from plumbline.reference.registers import Tables
from plumbline.reference.tables import load

SECOND = Path(__file__).with_name("second")
DOCUMENTS = {
    "000": "coral-sc18",
    "001": "coral-sc19",
    "002": "pmbs23",
    "003": "reedbush-2016",
    "004": "cielo-xe6",
}

#: Benchmarks whose measured rows the second transcription covers whole.
COVERED = {"osu", "babelstream", "stream", "gpcnet", "ior", "mdtest", "fio", "commscope", "imb",
           "nvlink", "mpigraph", "hpl", "hpcg", "network"}  # fmt: skip

#: Spellings of the second transcriber that the tables do not have (see resolved.csv).
SPELLINGS = {
    "GB/s/GPU": "GB/s",
    "GB/SEC": "GB/s",
    "GB/sec per core": "GB/s",
    "GB/second": "GB/s",
    "GBytes per second per core": "GB/s",
    "file creates per second": "operation/s",
    "Million file creates per second": "Moperation/s",
    "metadata operations per second": "operation/s",
}


@pytest.fixture(scope="module")
def tables() -> Tables:
    return load(paths.reference())


def unit_of(text: str) -> str:
    """A printed unit in the one spelling of the tables."""
    return units.SPELLINGS.get(text, SPELLINGS.get(text, text))


def second(document: str) -> list[dict]:
    """A document's rows of the second transcription."""
    with (SECOND / f"{document}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def place(row: dict) -> tuple[str, str]:
    """System and placement as the tables have them: resolved.csv on Table II of document 004."""
    matrix = re.fullmatch(r"numa-(\d+)-(\d+)", row["placement"])
    if row["document"].startswith("004") and matrix:
        system = "cielo" if row["system"] == "xt6" else row["system"]
        return system, f"numa-{matrix[2]}-{matrix[1]}"
    return row["system"], ""


def agrees(row: dict, printed: dict[str, str]) -> bool:
    """Whether a row of the tables prints what the second transcription has."""
    system, placement = place(row)
    same = printed["system"] == system and float(printed["value"]) == float(row["value"])
    # Where one states no unit, its note says which is read.
    same &= "" in (row["unit"], printed["unit"]) or unit_of(row["unit"]) == unit_of(printed["unit"])
    same &= not placement or printed["placement"] == placement
    for column in ("spread", "message_size", "nodes"):
        if row[column] and printed[column]:
            same &= float(row[column]) == float(printed[column])
    return same


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_row_of_the_second_is_in_the_tables(tables, document):
    """No value, spread, unit, size or node count differs."""
    first = [c for c in tables.printed.values() if c["source"] == DOCUMENTS[document]]
    rows = second(document)
    assert len(rows) >= 40
    missing = [row for row in rows if not any(agrees(row, printed) for printed in first)]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_measured_row_of_the_tables_is_in_the_second(tables, document):
    """And the other way round, each as often: a row that one transcriber invented is found."""
    found = defaultdict(int)
    for row in second(document):
        found[place(row)[0], float(row["value"])] += 1
    asserted = Counter(
        (row.system, row.value)
        for row in tables.rows.values()
        if row.source == DOCUMENTS[document]
        and row.kind == "measured"
        and row.benchmark in COVERED
        and tables.foms[row.benchmark][row.metric].tolerance != "data"
    )
    assert asserted
    assert {key: count for key, count in asserted.items() if count > found[key]} == {}


#: Pages of vendors and facilities, for the peaks of links.
GUIDES = ("alcf-slingshot", "amd-mi250", "nvidia-a100", "olcf-frontier")


@pytest.mark.parametrize("source", GUIDES)
def test_each_peak_of_a_guide_is_in_the_second(tables, source):
    """With its unit; X+X is printed for X in each direction."""
    found = {
        (float(row["value"].partition("+")[0]), unit_of(row["unit"]))
        for row in second("guides")
        if row["document"] == source and re.fullmatch(r"[\d.+]+", row["value"])
    }
    peaks = [cells for cells in tables.printed.values() if cells["source"] == source]
    assert peaks
    assert {(float(cells["value"]), unit_of(cells["unit"])) for cells in peaks} <= found


def test_a_wrong_digit_would_be_seen(tables):
    """The comparison is sharp enough to fail."""
    row = second("002")[0] | {"value": "13.999"}
    assert not any(agrees(row, printed) for printed in tables.printed.values())
