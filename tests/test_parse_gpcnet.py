"""The table of GPCNeT, and what its outputs say."""

from __future__ import annotations

import re

import pytest
from captured import (
    NO_NUMBERS,
    NOT_PARSED,
    Program,
    changed,
    figures,
    read,
    refusal,
    text_of,
    whole,
)
from plumbline.parse import ParseError, gpcnet

#: Ends of the names of captures of failed runs: too few nodes, or cut. Open MPI's shared windows
#: clash where a node is emulated, and it aborts.
GPCNET_TOO_FEW = r"network_(?:load_)?test(?:_\d+ranks)?_[149]nodes?|one_process|[24]ranks_1node"

GPCNET_PLAIN = "gpcnet/network_test_2fakenodes_2ranks"
GPCNET_LOAD = "gpcnet/stock_network_load_test_10fakenodes_10ranks_timeout240"
PROGRAM = Program(
    "gpcnet",
    failed=rf"{GPCNET_TOO_FEW}|\w*(?:killed|20ranks_10nodes|verbose|WRONG)\w*",
    closing=r"^\+-.*\+$",
    others=["osu/osu_bw", "hpcc/n400_2ranks"],
    reported=GPCNET_TOO_FEW,
    faults=[
        (GPCNET_PLAIN, r"^\| +RR Get Lat.*\n.*\n", ""),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*\n.*\n)", r"\1\1"),
        (GPCNET_PLAIN, r"RR Get Lat", "RR Got Lat"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*)usec", r"\1msec"),
        (GPCNET_PLAIN, r"^(\| +RR Put BW.*)MiB/s/rank", r"\1 MB/s/rank"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*) \|$", r"\1"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*\|)$", r"\1 |"),
        (GPCNET_PLAIN, r"99% \|        Units", r"9.9% |       Units"),
        (GPCNET_PLAIN, r"Isolated Network Tests", "Isolated Natwork Tests"),
        (GPCNET_PLAIN, r"^Network Tests v1.3.*\n", ""),
        (GPCNET_PLAIN, r"\(2 nodes\)", "(two nodes)"),
        (GPCNET_PLAIN, r"RR Get Lat \(8 B\)", "RR Get Lat (8 M)"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*\n)\+.*\n", r"\1"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat.*)0\.1( \| +usec)", r"\1.01\2"),
        (GPCNET_LOAD, r"^  8 nodes running", "  7 nodes running"),
        (GPCNET_LOAD, r" 5\.6X ", " 5.7X "),
        (GPCNET_LOAD, r" 1\.3X ", " 0.8X "),
        (GPCNET_LOAD, r"154\.5X", "154.5x"),
        (GPCNET_LOAD, r"        5\.6X", "        infX"),
        (GPCNET_LOAD, r" 11\.2 ", " 0.0  "),
    ],
)


@pytest.mark.parametrize("name", PROGRAM.good)
def test_gpcnet_every_cell_is_read(name: str) -> None:
    """Row by row, read without the parser's checks."""
    expected, tables = {}, text_of(name).split("Network Tests")
    for row, size, mean, tail, unit in re.findall(
        r"^\| +(.+) \((\d+) B\)? +\| +(\S+) \| +(\S+) \| +(\w\S*) \|$", text_of(name), re.M
    ):
        first = f"{row} ({size} B" not in "".join(map(str, expected.values()))
        place = "isolated" if first else "congested"
        printed = ("MiB/s" if unit != "usec" else "us", f"{row} ({size} B")
        expected[f"{gpcnet.ROWS[row]}_{size}_{place}"] = (float(mean), *printed)
        expected[f"{gpcnet.ROWS[row]}_p99_{size}_{place}"] = (float(tail), *printed)
    expected = {key: value[:2] for key, value in expected.items()}
    factors = r"^\| +(.+) \(\d+ B\)? +\| +(\S+)X \| +(\S+)X \|$"
    for row, mean, tail in re.findall(factors, text_of(name), re.M):
        expected[f"{gpcnet.ROWS[row]}_congestion_factor"] = (float(mean), "one")
        expected[f"{gpcnet.ROWS[row]}_p99_congestion_factor"] = (float(tail), "one")
    assert whole(name) == expected
    assert len(tables) > 1


def test_gpcnet_inputs() -> None:
    assert read(GPCNET_PLAIN).inputs == {"program": "network_test", "nodes": "2"}
    assert read(GPCNET_LOAD).inputs == {
        "program": "network_load_test",
        "nodes": "10",
        "test_nodes": "2",
        "congestor_nodes": "8",
    }


def test_gpcnet_name_that_the_table_cuts() -> None:
    """31 characters: the bracket of a size of seven digits is lost."""
    text = text_of(GPCNET_LOAD).replace("BW+Sync (131072 B)", "BW+Sync (1048576 B")
    found = figures(read(GPCNET_LOAD, text))
    assert found["random_ring_sync_bandwidth_1048576_isolated"] == (4701.2, "MiB/s")
    text = text_of(GPCNET_LOAD).replace("BW+Sync (131072 B)", "BW+Sync (10485760 ")
    assert refusal(GPCNET_LOAD, text) == NOT_PARSED


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (GPCNET_PLAIN, r"^(\| +RR Get Lat \(8 B\) \|) {10}\S+( .*)$"),
        (GPCNET_PLAIN, r"^(\| +RR Get Lat \(8 B\) \|.{14}\|) {10}\S+( .*)$"),
        (GPCNET_LOAD, r"^(\| +RR Two-sided Lat \(8 B\) \|) {7} +\d+\.\d(X .*)$"),
    ],
)
def test_gpcnet_no_finite_number(name: str, pattern: str) -> None:
    for number in NO_NUMBERS:
        with pytest.raises(ParseError):
            width = 20 if "X" in pattern else 13
            cell = f"{number:>{width}.{width}}"
            read(name, changed(text_of(name), pattern, rf"\g<1>{cell}\2"))


def test_gpcnet_table_of_a_size_of_its_own() -> None:
    first, last = text_of(GPCNET_LOAD).rsplit("(131072 B)", 1)
    assert refusal(GPCNET_LOAD, f"{first}(131073 B){last}") == NOT_PARSED
