"""The table of mdtest, and what its outputs say."""

from __future__ import annotations

import random
import re
import statistics

import pytest
from captured import PROGRAM_ERROR, Program, changed, figures, read, text_of, whole
from plumbline.parse import ParseError, mdtest

MDTEST_FILES = "mdtest/v400_mpich_files"
MDTEST_BOTH = "mdtest/v400_mpich_files_and_dirs"
MDTEST_OLD = "mdtest/v330_openmpi_files_i3"
MDTEST_TIMES = "mdtest/v400_openmpi_P"
PROGRAM = Program(
    "mdtest",
    failed="bad_option|help|killed|stonewall|verbose|no_directory|no_space|not_writable"
    r"|(?:read|stat|remove)_missing|\w+_launcher_WRONG",
    closing=r"^-- finished at .*",
    others=["ior/v400_mpich_posix_fpp", "osu/osu_bw"],
    reported=r"no_\w+|not_writable|(?:remove|stat)_missing|(?:v330_mpich|openmpi)_read_missing"
    r"|v330_openmpi_mpich_launcher_WRONG|v400_\w+_WRONG",
    cells=[
        (MDTEST_FILES, r"^(   File creation +\S+ +\S+ +)\S+(.*)$"),
        (MDTEST_FILES, r"^(   Tree removal +)\S+(.*)$"),
        (MDTEST_OLD, r"^(   File stat +: +\S+ +\S+ +)\S+(.*)$"),
        (MDTEST_FILES, r"(launched with )\d+( total)"),
    ],
    faults=[
        (MDTEST_FILES, r"^   File stat .*\n", ""),
        (MDTEST_FILES, r"^(   File stat .*\n)", r"\1\1"),
        (MDTEST_FILES, r"^(   File stat .*)$", r"\1 1.000"),
        (MDTEST_FILES, r"^(   File stat .*) \S+$", r"\1"),
        (MDTEST_FILES, r"^   File stat ", "   File unlink"),
        (MDTEST_FILES, r"^(   File stat .*\n)", r"\1Abort(1)\n"),
        (MDTEST_FILES, r"^(   File stat .*\n)", r"\1\n"),
        (MDTEST_FILES, r"Mean", "Median"),
        (MDTEST_FILES, r"^   -----.*\n", ""),
        (MDTEST_FILES, r"^SUMMARY rate", "SUMMARY time"),
        (MDTEST_FILES, r"^SUMMARY.*$", "SUMMARY"),
        (MDTEST_FILES, r"^(   File stat +\S+ +\S+ +)\S+", r"\g<1>1.000"),
        (MDTEST_FILES, r"^(   File stat +\S+ +\S+ +)\S+", r"\g<1>900000.000"),
        (MDTEST_FILES, r"^2 tasks", "1 tasks"),
        (MDTEST_FILES, r"^(2 tasks.*\n)", r"\1\1"),
        (MDTEST_FILES, r"^mdtest-.*\n", ""),
        (MDTEST_FILES, r"^-- started.*\n", ""),
        (MDTEST_FILES, r"^-- finished.*\n", ""),
        (MDTEST_FILES, r"(-- finished.*\n)", r"\1SUMMARY rate: (of 1 iterations)\n"),
        (MDTEST_FILES, r"'data/t'$", "'data/t"),
        (MDTEST_FILES, r"^(2 tasks.*\n)", r"\1WARNING: unable to create file x\n", PROGRAM_ERROR),
        (MDTEST_FILES, r"^(2 tasks.*\n)", r"\1ior ERROR: write failed\n", PROGRAM_ERROR),
        (
            MDTEST_FILES,
            r"^(-- finished)",
            r"\nERROR: verifying the data read! Take the performance values with care!\n\1",
            PROGRAM_ERROR,
        ),
        (MDTEST_TIMES, r"^SUMMARY time: \(of 1", "SUMMARY time: (of 3"),
        (MDTEST_TIMES, r"^SUMMARY time", "SUMMARY rate"),
        (MDTEST_TIMES, "20 files", "30 files"),
        (MDTEST_FILES, r"\(of 1 iterations", "(of 0 iterations"),
        (MDTEST_BOTH, r"^   Directory stat .*\n", ""),
    ],
)


@pytest.mark.parametrize("name", PROGRAM.good)
def test_mdtest_every_mean_is_read(name: str) -> None:
    """Row by row, read without the parser's checks; zero is a phase that did not run."""
    table = text_of(name).split("SUMMARY rate")[1].split("SUMMARY time")[0]
    expected = {}
    for phase, mean in re.findall(r"^   (\w+ \w+) *:? +\S+ +\S+ +(\S+) +\S+$", table, re.M):
        if float(mean):
            expected[f"{phase.lower().replace(' ', '_')}_rate"] = (float(mean), "operation/s")
    assert whole(name) == expected != {}


def test_mdtest_inputs() -> None:
    assert read(MDTEST_FILES).inputs == {
        "nodes": "1",
        "items_per_task": "10",
        "write_bytes": "32768",
        "read_bytes": "32768",
        "unique_dir": "1",
        "files_only": "1",
        "path": "data/t",
        "items": "20",
        "items_are": "files",
        "shift": "0",
        "iterations": "1",
    }
    for name in ("v330_mpich_shift", "v400_openmpi_shift"):
        assert read(f"mdtest/{name}").inputs["shift"] == "1"
    assert read(MDTEST_BOTH).inputs["write_bytes"] == "0"
    assert read("mdtest/v400_mpich_files_i3").inputs["iterations"] == "3"


@pytest.mark.parametrize("name", ["mdtest/v330_mpich_P", MDTEST_TIMES])
def test_mdtest_rates_agree_with_times_however_they_are_rounded(name: str) -> None:
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
            rates = line.sub(mdtest_row([done / seconds for seconds in took]), rates)
            times = line.sub(mdtest_row(took), times)
        assert len(read(name, f"{rates}SUMMARY time{times}").foms) == 6


def mdtest_row(values: list[float]) -> str:
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
def test_mdtest_rates_that_do_not_agree_with_their_times(row: str, numbers: str) -> None:
    phase = row.partition(" +")[0]
    text = changed(text_of(MDTEST_TIMES), rf"^   {row}\S+ +\S+ +\S+", f"   {phase} {numbers}")
    with pytest.raises(ParseError, match=phase):
        read(MDTEST_TIMES, text)


def test_mdtest_files_that_are_not_counted_have_no_time_to_agree_with() -> None:
    """With -S mdtest reports "1 file"; with -n and -I it counts anew in each iteration."""
    assert len(read(MDTEST_TIMES, changed(text_of(MDTEST_TIMES), "20 files", "1 file")).foms) == 6
    other = changed(text_of(MDTEST_TIMES), "20 files", "60 files")
    assert len(read(MDTEST_TIMES, changed(other, "'-n' '10'", "'-n' '10' '-I' '3'")).foms) == 6


def test_mdtest_title_of_main() -> None:
    text = changed(text_of(MDTEST_FILES), "SUMMARY rate:", "SUMMARY rate (in ops/sec):")
    assert figures(read(MDTEST_FILES, text)) == whole(MDTEST_FILES)


@pytest.mark.parametrize("name", [name for name in PROGRAM.good if "v330" in name])
def test_mdtest_old_version_prints_colons(name: str) -> None:
    assert read(name).version == "3.3.0"
    assert " : " in text_of(name)
