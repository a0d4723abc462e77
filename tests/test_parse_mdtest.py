"""The parser of mdtest: real captures, read exactly; damage, refused."""

from __future__ import annotations

import random
import re
import statistics

import damage
import pytest
from damage import changed, figures, read, text_of
from plumbline.parse import ParseError, mdtest

#: End of a capture's name -> what its refusal says.
REFUSED = {
    "bad_option|help": "opening line of mdtest: found 0 times",
    "killed": "closing line of mdtest: found 0 times",
    r"stonewall": "a stonewall",
    "verbose": "no row, or one twice: 'V-1: ",
    r"no_directory|no_space|not_writable|(?:read|stat|remove)_missing": "mdtest says|closing line",
    r"\w+_launcher_WRONG": "found 2 times|mdtest says|found 0 times",
}
GOOD = damage.good_of("mdtest", REFUSED)
FAILED = sorted(set(damage.names_of("mdtest")) - set(GOOD))

FILES = "mdtest/v400_mpich_files"
BOTH = "mdtest/v400_mpich_files_and_dirs"
OLD = "mdtest/v330_openmpi_files_i3"
TIMES = "mdtest/v400_openmpi_P"


@pytest.mark.parametrize("name", GOOD)
def test_every_mean_is_read(name: str) -> None:
    """Row by row, read without any of the parser's care; zero is a phase that did not run."""
    table = text_of(name).split("SUMMARY rate")[1].split("SUMMARY time")[0]
    expected = {}
    for phase, mean in re.findall(r"^   (\w+ \w+) *:? +\S+ +\S+ +(\S+) +\S+$", table, re.M):
        if float(mean):
            expected[f"{phase.lower().replace(' ', '_')}_rate"] = (float(mean), "operation/s")
    assert figures(read(name)) == expected != {}


def test_spot_values() -> None:
    output = read(FILES)
    assert (output.tasks, output.version) == (2, "4.0.0")
    assert figures(output) == {
        "file_creation_rate": (19382.181, "operation/s"),
        "file_stat_rate": (716975.043, "operation/s"),
        "file_read_rate": (194180.741, "operation/s"),
        "file_removal_rate": (128070.351, "operation/s"),
        "tree_creation_rate": (85.288, "operation/s"),
        "tree_removal_rate": (350.255, "operation/s"),
    }
    assert output.inputs == {
        "nodes": "1",
        "items_per_task": "10",
        "write_bytes": "32768",
        "read_bytes": "32768",
        "unique_dir": "1",
        "files_only": "1",
        "path": "data/t",
        "items": "20",
        "items_are": "files",
        "iterations": "1",
    }
    found = figures(read(BOTH))
    assert found["directory_creation_rate"] == (2499.362, "operation/s")
    assert found["directory_rename_rate"] == (2502.195, "operation/s")
    assert len(found) == 10
    assert read(BOTH).inputs["write_bytes"] == "0"
    assert figures(read("mdtest/v400_mpich_create_only")) == {
        "file_creation_rate": (3599.643, "operation/s"),
        "tree_creation_rate": (4670.717, "operation/s"),
    }


def test_mean_of_several_iterations() -> None:
    output = read("mdtest/v400_mpich_files_i3")
    assert output.inputs["iterations"] == "3"
    assert figures(output)["tree_creation_rate"] == (3966.850, "operation/s")
    assert figures(read(OLD))["file_creation_rate"] == (636.752, "operation/s")


def test_times_are_no_rates() -> None:
    assert figures(read(TIMES))["file_creation_rate"] == (1650.716, "operation/s")
    assert len(read(TIMES).foms) == 6


@pytest.mark.parametrize("name", ["mdtest/v330_mpich_P", TIMES])
def test_rates_agree_with_times_however_they_are_rounded(name: str) -> None:
    """Runs as ``summarize_results`` of the two versions sums them up: 3.3.0 over tasks and
    iterations, 4.0.0 over iterations."""
    rng = random.Random(f"20261121 {name}")
    for _ in range(200):
        iterations, tasks = rng.randint(1, 4), 2 if "v330" in name else 1
        items, folders = 2 * rng.choice([1, 11, 4096, 10**6]), rng.randint(1, 9)
        text = changed(text_of(name), "20 files", f"{items} files")
        rates, times = text.replace("(of 1 ", f"(of {iterations} ").split("SUMMARY time")
        for phase in mdtest.ROWS[2]:
            done = folders if phase.startswith("Tree") else items
            usual = 10 ** rng.uniform(-4, 3)
            took = [usual * rng.uniform(1, 2) for _ in range(iterations * tasks)]
            line = re.compile(rf"^(   {phase} *:?).*$", re.M)
            rates = line.sub(row([done / seconds for seconds in took]), rates)
            times = line.sub(row(took), times)
        assert len(read(name, f"{rates}SUMMARY time{times}").foms) == 6


def row(values: list[float]) -> str:
    cells = (max(values), min(values), statistics.fmean(values), statistics.pstdev(values))
    return r"\1" + "".join(f" {cell:14.3f}" for cell in cells)


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        # 20 files in half a second are 40 a second, and not thousands.
        ("File creation +0", "0.500 0.500 0.500"),
        ("File creation +1", "16507.160 16507.160 16507.160"),
        ("File creation +1", "165.071 165.071 165.071"),
        ("File creation +1", "1650.716 0.000 1650.716"),
        # A tree has one directory or more.
        ("Tree creation +3", "10.000 10.000 10.000"),
    ],
)
def test_rates_that_do_not_agree_with_their_times(row: str, numbers: str) -> None:
    phase = row.partition(" +")[0]
    text = changed(text_of(TIMES), rf"^   {row}\S+ +\S+ +\S+", f"   {phase} {numbers}")
    with pytest.raises(ParseError, match=f"{phase}: .* cannot be what was done in"):
        read(TIMES, text)


def test_another_number_of_files() -> None:
    with pytest.raises(ParseError, match="cannot be what was done in"):
        read(TIMES, changed(text_of(TIMES), "20 files", "30 files"))


def test_files_that_are_not_counted_have_no_time_to_agree_with() -> None:
    """With -S mdtest says "1 file"; with -n and -I it counts anew in each iteration."""
    assert len(read(TIMES, changed(text_of(TIMES), "20 files", "1 file")).foms) == 6
    other = changed(text_of(TIMES), "20 files", "60 files")
    assert len(read(TIMES, changed(other, "'-n' '10'", "'-n' '10' '-I' '3'")).foms) == 6


def test_title_of_main() -> None:
    text = changed(text_of(FILES), "SUMMARY rate:", "SUMMARY rate (in ops/sec):")
    assert figures(read(FILES, text)) == figures(read(FILES))


@pytest.mark.parametrize("name", [name for name in GOOD if "v330" in name])
def test_old_version_prints_colons(name: str) -> None:
    assert read(name).version == "3.3.0"
    assert " : " in text_of(name)


# -- damage --------------------------------------------------------------------------------------


#: Cells, each between two groups: a text is refused where one is no number.
CELLS = [
    (FILES, r"^(   File creation +\S+ +\S+ +)\S+(.*)$"),
    (FILES, r"^(   Tree removal +)\S+(.*)$"),
    (OLD, r"^(   File stat +: +\S+ +\S+ +)\S+(.*)$"),
    (FILES, r"(launched with )\d+( total)"),
]


#: What is changed in a capture, by what, and what the refusal says.
FAULTS = [
    (FILES, r"^   File stat .*\n", "", "rows are missing"),
    (FILES, r"^(   File stat .*\n)", r"\1\1", "one twice"),
    (FILES, r"^(   File stat .*)$", r"\1 1.000", "no row"),
    (FILES, r"^(   File stat .*) \S+$", r"\1", "no row"),
    (FILES, r"^   File stat ", "   File unlink", "rows are missing"),
    (FILES, r"^(   File stat .*\n)", r"\1Abort(1)\n", "no row"),
    (FILES, r"^(   File stat .*\n)", r"\1\n", "rows are missing"),
    (FILES, r"Mean", "Median", "unknown head"),
    (FILES, r"^   -----.*\n", "", "no line under its head"),
    (FILES, r"^SUMMARY rate", "SUMMARY time", "table of rates is missing"),
    (FILES, r"^SUMMARY.*$", "SUMMARY", "a row outside of a table"),
    (FILES, r"^(   File stat +\S+ +\S+ +)\S+", r"\g<1>1.000", "minimum, mean, maximum"),
    (FILES, r"^(   File stat +\S+ +\S+ +)\S+", r"\g<1>900000.000", "minimum, mean, maximum"),
    (FILES, r"^2 tasks", "1 tasks", "2 tasks were launched, 1 worked"),
    (FILES, r"^(2 tasks.*\n)", r"\1\1", "tasks and items: found 2 times"),
    (FILES, r"^mdtest-.*\n", "", "mdtest's tasks: found 0 times"),
    (FILES, r"^-- started.*\n", "", "opening line"),
    (FILES, r"^-- finished.*\n", "", "closing line"),
    (FILES, r"(-- finished.*\n)", r"\1SUMMARY rate: (of 1 iterations)\n", "after the closing"),
    (FILES, r"'data/t'$", "'data/t", "command line is cut"),
    (FILES, r"^(2 tasks.*\n)", r"\1WARNING: unable to create file x\n", "mdtest says: WARNING"),
    (FILES, r"^(2 tasks.*\n)", r"\1ior ERROR: write failed\n", "mdtest says: ior ERROR"),
    (
        FILES,
        r"^(-- finished)",
        r"\nERROR: verifying the data read! Take the performance values with care!\n\1",
        "mdtest says: ERROR: verifying",
    ),
    (TIMES, r"^SUMMARY time: \(of 1", "SUMMARY time: (of 3", "other rows or iterations"),
    (TIMES, r"^SUMMARY time", "SUMMARY rate", "printed twice"),
    (FILES, r"\(of 1 iterations", "(of 0 iterations", "of no iteration"),
    (BOTH, r"^   Directory stat .*\n", "", "rows are missing"),
]


PROGRAM = damage.Program(
    "mdtest",
    GOOD,
    {name: damage.says_of(name, REFUSED) for name in FAILED},
    r"^-- finished at .*",
    ["ior/v400_mpich_posix_fpp", "osu/osu_bw"],
    "opening line of mdtest",
    cells=CELLS,
    faults=FAULTS,
)
