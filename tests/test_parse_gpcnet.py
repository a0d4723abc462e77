"""The parser of GPCNeT: real captures, read exactly; damage, refused."""

from __future__ import annotations

import re

import damage
import pytest
from damage import changed, figures, read, text_of
from plumbline.parse import ParseError
from plumbline.parse.gpcnet import ROWS

#: End of a capture's name -> what its refusal says.
REFUSED = {
    # Open MPI's shared windows clash where a node is emulated, and it aborts.
    r"\w*killed|\w*20ranks_10nodes": "the tables are|rows are missing|cut|not closed",
    r"network_(?:load_)?test(?:_\d+ranks)?_\d+nodes?": "at least (?:2|10) nodes",
    "one_process|4ranks_1node|2ranks_1node": "at least (?:2|10) nodes",
    r"\w*verbose\w*": "cut or too long",
    r"\w*launcher_WRONG": "GPCNeT says|found",
}
GOOD = [
    name
    for name in damage.names_of("gpcnet")
    if "+---" in text_of(name) and not re.search("killed|20ranks|verbose|WRONG", name)
]
FAILED = sorted(set(damage.names_of("gpcnet")) - set(GOOD))

PLAIN = "gpcnet/network_test_2fakenodes_2ranks"
LOAD = "gpcnet/stock_network_load_test_10fakenodes_10ranks_timeout240"


@pytest.mark.parametrize("name", GOOD)
def test_every_cell_is_read(name: str) -> None:
    """Row by row, read without any of the parser's care."""
    expected, tables = {}, text_of(name).split("Network Tests")
    for row, size, mean, tail, unit in re.findall(
        r"^\| +(.+) \((\d+) B\)? +\| +(\S+) \| +(\S+) \| +(\w\S*) \|$", text_of(name), re.M
    ):
        first = f"{row} ({size} B" not in "".join(map(str, expected.values()))
        at = "isolated" if first else "congested"
        said = ("MiB/s" if unit != "usec" else "us", f"{row} ({size} B")
        expected[f"{ROWS[row]}_{size}_{at}"] = (float(mean), *said)
        expected[f"{ROWS[row]}_p99_{size}_{at}"] = (float(tail), *said)
    expected = {key: value[:2] for key, value in expected.items()}
    factors = r"^\| +(.+) \(\d+ B\)? +\| +(\S+)X \| +(\S+)X \|$"
    for row, mean, tail in re.findall(factors, text_of(name), re.M):
        expected[f"{ROWS[row]}_congestion_factor"] = (float(mean), "one")
        expected[f"{ROWS[row]}_p99_congestion_factor"] = (float(tail), "one")
    assert figures(read(name)) == expected
    assert len(tables) > 1


def test_network_test() -> None:
    output = read(PLAIN)
    assert (output.tasks, output.version) == (2, "1.3")
    assert output.inputs == {"program": "network_test", "nodes": "2"}
    found = figures(output)
    assert len(found) == 16
    assert found["random_ring_latency_8_isolated"] == (0.1, "us")
    assert found["random_ring_latency_p99_8_isolated"] == (0.3, "us")
    assert found["random_ring_get_latency_8_isolated"] == (0.1, "us")
    assert found["random_ring_bandwidth_131072_isolated"] == (11581.9, "MiB/s")
    assert found["random_ring_bandwidth_p99_131072_isolated"] == (6187.6, "MiB/s")
    assert found["random_ring_put_bandwidth_131072_isolated"] == (102859.6, "MiB/s")
    assert found["random_ring_sync_bandwidth_131072_isolated"] == (10496.1, "MiB/s")
    assert found["natural_ring_bandwidth_131072_isolated"] == (10617.3, "MiB/s")
    assert found["multiple_allreduce_latency_8_isolated"] == (0.5, "us")
    assert found["multiple_alltoall_bandwidth_4096_isolated"] == (983.2, "MiB/s")


def test_network_load_test() -> None:
    output = read(LOAD)
    assert (output.tasks, output.version) == (10, "1.3")
    assert output.inputs == {
        "program": "network_load_test",
        "nodes": "10",
        "test_nodes": "2",
        "congestor_nodes": "8",
    }
    found = figures(output)
    assert len(found) == 18
    assert found["random_ring_latency_8_isolated"] == (11.2, "us")
    assert found["random_ring_latency_8_congested"] == (62.7, "us")
    assert found["random_ring_latency_p99_8_congested"] == (1977.1, "us")
    assert found["random_ring_sync_bandwidth_p99_131072_congested"] == (333.6, "MiB/s")
    assert found["random_ring_latency_congestion_factor"] == (5.6, "one")
    assert found["random_ring_latency_p99_congestion_factor"] == (154.5, "one")
    assert found["random_ring_sync_bandwidth_congestion_factor"] == (1.3, "one")
    assert found["multiple_allreduce_latency_p99_congestion_factor"] == (32.5, "one")


def test_name_that_the_table_cuts() -> None:
    """31 characters: the bracket of a size of seven digits is lost."""
    text = text_of(LOAD).replace("BW+Sync (131072 B)", "BW+Sync (1048576 B")
    found = figures(read(LOAD, text))
    assert found["random_ring_sync_bandwidth_1048576_isolated"] == (4701.2, "MiB/s")
    text = text_of(LOAD).replace("BW+Sync (131072 B)", "BW+Sync (10485760 ")
    with pytest.raises(ParseError, match="without name and size"):
        read(LOAD, text)


# -- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (PLAIN, r"^(\| +RR Get Lat \(8 B\) \|) {10}\S+( .*)$"),
        (PLAIN, r"^(\| +RR Get Lat \(8 B\) \|.{14}\|) {10}\S+( .*)$"),
        (LOAD, r"^(\| +RR Two-sided Lat \(8 B\) \|) {7} +\d+\.\d(X .*)$"),
    ],
)
def test_no_finite_number(name: str, pattern: str) -> None:
    for number in damage.NO_NUMBERS:
        with pytest.raises(ParseError):
            width = 20 if "X" in pattern else 13
            cell = f"{number:>{width}.{width}}"
            read(name, changed(text_of(name), pattern, rf"\g<1>{cell}\2"))


#: What is changed in a capture, by what, and what the refusal says.
FAULTS = [
    (PLAIN, r"^\| +RR Get Lat.*\n.*\n", "", "rows are missing or doubled"),
    (PLAIN, r"^(\| +RR Get Lat.*\n.*\n)", r"\1\1", "rows are missing or doubled"),
    (PLAIN, r"RR Get Lat", "RR Got Lat", "rows are missing or doubled|expected two"),
    (PLAIN, r"^(\| +RR Get Lat.*)usec", r"\1msec", "not measured in 'msec'"),
    (PLAIN, r"^(\| +RR Put BW.*)MiB/s/rank", r"\1 MB/s/rank", "not measured in 'MB/s/rank'"),
    (PLAIN, r"^(\| +RR Get Lat.*) \|$", r"\1", "cut or too long"),
    (PLAIN, r"^(\| +RR Get Lat.*\|)$", r"\1 |", "cut or too long"),
    (PLAIN, r"99% \|        Units", r"9.9% |       Units", "unknown head"),
    (PLAIN, r"Isolated Network Tests", "Isolated Natwork Tests", "unknown table"),
    (PLAIN, r"^Network Tests v1.3.*\n", "", "title of GPCNeT: found 0 times"),
    (PLAIN, r"\(2 nodes\)", "(two nodes)", "ranks and nodes: found 0 times"),
    (PLAIN, r"RR Get Lat \(8 B\)", "RR Get Lat (8 M)", "without name and size"),
    (PLAIN, r"^(\| +RR Get Lat.*\n)\+.*\n", r"\1", "not closed"),
    (PLAIN, r"^(\| +RR Get Lat.*)0\.1( \| +usec)", r"\1.01\2", "no number with one decimal"),
    (LOAD, r"^  8 nodes running", "  7 nodes running", "2 and 7 nodes are not 10"),
    (LOAD, r" 5\.6X ", " 5.7X ", "cannot be 5.7"),
    (LOAD, r" 1\.3X ", " 0.8X ", "cannot be 0.8"),
    (LOAD, r"154\.5X", "154.5x", "expected two factors"),
    (LOAD, r"        5\.6X", "        infX", "no number with one decimal"),
    (LOAD, r" 11\.2 ", " 0.0  ", "is 0.0"),
]


def test_table_of_a_size_of_its_own() -> None:
    first, last = text_of(LOAD).rsplit("(131072 B)", 1)
    with pytest.raises(ParseError, match="of different sizes"):
        read(LOAD, f"{first}(131073 B){last}")


PROGRAM = damage.Program(
    "gpcnet",
    GOOD,
    {name: damage.says_of(name, REFUSED) for name in FAILED},
    r"^\+-.*\+$",
    ["osu/osu_bw", "hpcc/n400_2ranks"],
    "title of GPCNeT",
    faults=FAULTS,
)
