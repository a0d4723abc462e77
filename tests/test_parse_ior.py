"""The table of IOR, and what its outputs say."""

from __future__ import annotations

import json
import re

import pytest
from captured import (
    NOT_PARSED,
    PROGRAM_ERROR,
    Program,
    changed,
    figures,
    read,
    refusal,
    text_of,
    whole,
)

IOR_TEXT = "ior/v400_mpich_posix_fpp"
IOR_OLD = "ior/v330_mpich_posix_i3"
IOR_JSON = "ior/v400_mpich_json"
IOR_OLD_JSON = "ior/v330_mpich_json_i3"
IOR_STONEWALL = "ior/v330_mpich_posix_stonewall"
IOR_REPORTED = r"bad_api|bad_sizes|data_errors\w*|no_(?:directory|space)\w*|read_(?:missing|short)"
PROGRAM = Program(
    "ior",
    failed=rf"{IOR_REPORTED}|bad_option|file_size_limit|killed|killed_json|verbose"
    r"|\w+_launcher_WRONG|posix_fpp_json_file",
    closing=r"^(?:Finished +: .*\d|})$",
    others=["mdtest/v400_mpich_files", "fio/write_end_fsync", "osu/osu_bw"],
    reported=IOR_REPORTED,
    cells=[
        (IOR_TEXT, r"^(write +)\S+( .* 0   )$"),
        (IOR_TEXT, r"^(write +\S+ +\S+ +)\S+(.*POSIX +0)$"),
        (IOR_TEXT, r"^(write +)\S+(.*POSIX +0)$"),
        (IOR_TEXT, r"^(tasks +: )\S+()$"),
        (IOR_JSON, r'("access": "write", *\n +"bwMiB": )[\d.]+(,)'),
        (IOR_JSON, r'("operation": "write"(?:.*\n)+?.*"bwMeanMIB": )[\d.]+(,)'),
        (IOR_JSON, r'("operation": "write"(?:.*\n)+?.*"numTasks": )[\d.]+(,)'),
    ],
    faults=[
        (IOR_TEXT, r"^read .* 0   \n", ""),
        (IOR_TEXT, r"^read .*POSIX.*\n", ""),
        (IOR_TEXT, r"^(read .* 0   \n)", r"\1\1"),
        (IOR_TEXT, r"^(read .*POSIX.*\n)", r"\1\1"),
        (IOR_TEXT, r"^(read .*) 0   $", r"\1 1   "),
        (IOR_TEXT, r"^(read .*POSIX +)0$", r"\g<1>0 0"),
        (IOR_TEXT, r"^(read .*POSIX) +0$", r"\1"),
        (IOR_TEXT, r"^(read .*\n)(?=\nSummary)", r"\1Abort(1) on node 1\n"),
        (IOR_TEXT, r"bw\(MiB/s\)", "bw(MB/s) "),
        (IOR_TEXT, r"Mean\(MiB\)", "Mean(MB) "),
        (IOR_TEXT, r"^(write +)438\.53( +438\.90)", r"\g<1>439.53\2"),
        (IOR_TEXT, r"^(write +\S+ +\S+ +)438\.53", r"\g<1>439.53"),
        (IOR_TEXT, r"^(write .*)0\.07297 ", r"\g<1>0.08297 "),
        (IOR_TEXT, r"^(write .*)   32\.0 ", r"\1   16.0 "),
        (IOR_TEXT, r"^(write .*)   32\.0 ", r"\1   64.0 "),
        (IOR_TEXT, r"^tasks   ", "tusks   "),
        (IOR_TEXT, r"^(tasks .*: )2", r"\g<1>4"),
        (IOR_TEXT, r"^(access +: )file-per-process", r"\1single-shared-file"),
        (IOR_TEXT, r"^(api +: )POSIX", r"\1MPIIO"),
        (IOR_TEXT, r"^(tasks .*\n)", r"\1\1"),
        (IOR_TEXT, r"^IOR-.*\n", ""),
        (IOR_TEXT, r"^Finished.*\n", ""),
        (IOR_TEXT, r"^Options.*\n", ""),
        (IOR_OLD, r"^(write .*) 1   $", r"\1 2   "),
        (IOR_OLD, r"^(read +)3605", r"\g<1>3705"),
        (IOR_STONEWALL, r"^(write .*) 531\.0 ", r"\1 1131.0 "),
        (IOR_JSON, r'"Version"', '"Vorsion"'),
        (IOR_JSON, r'^(.*"bwMeanMIB".*\n)(?=(?:.*\n)+.*"read")', ""),
        (IOR_JSON, r'("operation": )"read"', r'\1"erase"'),
        (IOR_JSON, r'("access": )"read"', r'\1"erase"'),
        (IOR_JSON, r'("access": )"read"', r'\1"write"'),
        (IOR_JSON, r'("tests": )\[', r"\1[{}, "),
        (IOR_JSON, r'"Finished"', '"Finish"'),
        (IOR_JSON, r'("keepFile": )0', r"\1false"),
        (IOR_OLD_JSON, r'("bwMaxMIB": )1727\.3702', r"\g<1>1727.3802"),
    ],
)


@pytest.mark.parametrize("name", PROGRAM.good)
def test_ior_every_mean_is_read(name: str) -> None:
    """Read without any of the parser's care."""
    summary = re.split('Summary of all tests:|"summary"', text_of(name))[1]
    if text_of(name).lstrip().startswith("{"):
        rows = re.findall(r'"operation": "(\w+)"(?:.*\n)+?.*"bwMeanMIB": (\S+),', summary)
    else:
        rows = re.findall(r"^(write|read) +\S+ +\S+ +(\S+)", summary, re.M)
    expected = {f"{name}_bandwidth": (float(mean), "MiB/s") for name, mean in rows}
    assert whole(name) == expected != {}


def test_ior_inputs() -> None:
    assert read(IOR_TEXT).inputs == {
        "api": "POSIX",
        "access": "file-per-process",
        "type": "independent",
        "ordering": "sequential",
        "file": "data/f",
        "nodes": "1",
        "tasks": "2",
        "tasks_per_node": "2",
        "transfer_size": "1048576",
        "block_size": "16777216",
        "segments": "1",
        "repetitions": "1",
        "stonewall": "0",
        "keep_file": "0",
    }
    assert read("ior/v400_mpich_posix_shared").inputs["access"] == "single-shared-file"
    assert read("ior/v400_mpich_mpiio_collective").inputs["type"] == "collective"
    assert read("ior/v400_mpich_posix_random_4k").inputs["ordering"] == "random"
    assert read("ior/v400_mpich_posix_random_4k").inputs["transfer_size"] == "4096"
    assert read(IOR_OLD).inputs["repetitions"] == read(IOR_OLD_JSON).inputs["repetitions"] == "3"
    assert list(whole("ior/v400_mpich_write_only")) == ["write_bandwidth"]
    assert list(whole("ior/v330_mpich_read_only")) == ["read_bandwidth"]


def test_ior_json_tells_the_same_inputs_as_the_text() -> None:
    assert read(IOR_JSON).inputs == read(IOR_TEXT).inputs
    assert read("ior/v330_mpich_json").inputs == read("ior/v330_mpich_posix_fpp").inputs


def test_ior_layout_of_the_json_does_not_matter() -> None:
    text = "mpiexec: a warning\n" + json.dumps(json.loads(text_of(IOR_JSON)))
    assert figures(read(IOR_JSON, text)) == whole(IOR_JSON)


@pytest.mark.parametrize("which", ["stonewall", "worn_out"])
def test_ior_stonewall_in_json(which: str) -> None:
    output = read(f"ior/v400_mpich_posix_{which}_json")
    assert output.inputs["stonewall"] == "1"
    assert [fom.metric for fom in output.foms] == ["write_bandwidth", "read_bandwidth"]


def test_ior_stonewall() -> None:
    """A stonewall leaves a smaller file: its rate is of what was moved."""
    output = read(IOR_STONEWALL)
    assert output.inputs["stonewall"] == "1"
    assert figures(output)["write_bandwidth"] == (529.00, "MiB/s")
    text = text_of(IOR_STONEWALL).replace("stonewallingTime    : 1\n", "")
    assert refusal(IOR_STONEWALL, text) == NOT_PARSED


IOR_WARNING = "WARNING: unable to statfs() file system.\n"


def test_ior_warnings_in_the_middle() -> None:
    for name, before in ((IOR_TEXT, r"^(api )"), (IOR_JSON, r'^( +"Options")')):
        text = changed(text_of(name), before, rf"{IOR_WARNING}\1")
        assert figures(read(name, text)) == whole(name)
        for line in ("WARNING: write(7, 0x1, 8) failed No space", "ior ERROR: cannot open file"):
            text = changed(text_of(name), before, rf"{line}\n\1")
            assert refusal(name, text) == PROGRAM_ERROR
