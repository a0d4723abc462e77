"""The parser of IOR: real captures, read exactly; damage, refused."""

from __future__ import annotations

import json
import re

import damage
import pytest
from damage import changed, figures, read, text_of
from plumbline import parse
from plumbline.parse import ParseError

#: End of a capture's name -> what its refusal says.
REFUSED = {
    r"bad_api|bad_sizes|no_directory\w*|no_space\w*|read_missing|read_short": "IOR says: ",
    r"data_errors\w*": "IOR says: .*(?:FAILED comparison|Incorrect data on read)",
    "bad_option|file_size_limit": "JSON report is missing|IOR says|no whole JSON",
    "killed": "closing line of IOR: found 0 times",
    "killed_json": "no whole JSON report",
    "verbose": "no row of the results",
    r"\w+_launcher_WRONG": "banner of IOR: found 2 times",
    "posix_fpp_json_file": "JSON report is missing",
}
GOOD = damage.good_of("ior", REFUSED)
FAILED = sorted(set(damage.names_of("ior")) - set(GOOD) - {"ior/posix_fpp_json_file"})

TEXT = "ior/v400_mpich_posix_fpp"
OLD = "ior/v330_mpich_posix_i3"
JSON = "ior/v400_mpich_json"
OLD_JSON = "ior/v330_mpich_json_i3"
STONEWALL = "ior/v330_mpich_posix_stonewall"


@pytest.mark.parametrize("name", GOOD)
def test_every_mean_is_read(name: str) -> None:
    """Read without any of the parser's care."""
    summary = re.split('Summary of all tests:|"summary"', text_of(name))[1]
    if text_of(name).lstrip().startswith("{"):
        rows = re.findall(r'"operation": "(\w+)"(?:.*\n)+?.*"bwMeanMIB": (\S+),', summary)
    else:
        rows = re.findall(r"^(write|read) +\S+ +\S+ +(\S+)", summary, re.M)
    expected = {f"{name}_bandwidth": (float(mean), "MiB/s") for name, mean in rows}
    assert figures(read(name)) == expected != {}


def test_text() -> None:
    output = read(TEXT)
    assert (output.tasks, output.version) == (2, "4.0.0")
    assert figures(output) == {
        "write_bandwidth": (438.53, "MiB/s"),
        "read_bandwidth": (31278.89, "MiB/s"),
    }
    assert output.inputs == {
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
    assert read("ior/v400_mpich_one_process").tasks == 1
    assert list(figures(read("ior/v400_mpich_write_only"))) == ["write_bandwidth"]
    assert list(figures(read("ior/v330_mpich_read_only"))) == ["read_bandwidth"]


def test_mean_of_several_repetitions() -> None:
    output = read(OLD)
    assert output.inputs["repetitions"] == "3"
    assert figures(output) == {
        "write_bandwidth": (1562.46, "MiB/s"),
        "read_bandwidth": (14946.70, "MiB/s"),
    }
    output = read(OLD_JSON)
    assert (output.tasks, output.version, output.inputs["repetitions"]) == (2, "3.3.0", "3")
    assert figures(output) == {
        "write_bandwidth": (1553.4604, "MiB/s"),
        "read_bandwidth": (24885.4848, "MiB/s"),
    }


def test_json_tells_the_same_inputs_as_the_text() -> None:
    assert read(JSON).inputs == read(TEXT).inputs
    assert read("ior/v330_mpich_json").inputs == read("ior/v330_mpich_posix_fpp").inputs


def test_layout_of_the_json_does_not_matter() -> None:
    text = "mpiexec: a warning\n" + json.dumps(json.loads(text_of(JSON)))
    assert figures(read(JSON, text)) == figures(read(JSON))


def test_stonewall_in_json() -> None:
    output = parse.parse("ior", text_of("ior/v400_mpich_posix_stonewall_json"))
    assert output.inputs["stonewall"] == "1"
    assert [fom.metric for fom in output.foms] == ["write_bandwidth", "read_bandwidth"]


def test_stonewall() -> None:
    """A stonewall leaves a smaller file: its rate is of what was moved."""
    output = read(STONEWALL)
    assert output.inputs["stonewall"] == "1"
    assert figures(output)["write_bandwidth"] == (529.00, "MiB/s")
    text = text_of(STONEWALL).replace("stonewallingTime    : 1\n", "")
    with pytest.raises(ParseError, match="without a stonewall"):
        read(STONEWALL, text)


WARNING = "WARNING: unable to statfs() file system.\n"


def test_warnings_in_the_middle() -> None:
    for name, before in ((TEXT, r"^(api )"), (JSON, r'^( +"Options")')):
        text = changed(text_of(name), before, rf"{WARNING}\1")
        assert figures(read(name, text)) == figures(read(name))
        for said in ("WARNING: write(7, 0x1, 8) failed No space", "ior ERROR: cannot open file"):
            with pytest.raises(ParseError, match=r"IOR says: .*(?:write|cannot open)"):
                read(name, changed(text_of(name), before, rf"{said}\n\1"))


# -- damage --------------------------------------------------------------------------------------


#: Cells, each between two groups: a text is refused where one is no number.
CELLS = [
    (TEXT, r"^(write +)\S+( .* 0   )$"),
    (TEXT, r"^(write +\S+ +\S+ +)\S+(.*POSIX +0)$"),
    (TEXT, r"^(write +)\S+(.*POSIX +0)$"),
    (TEXT, r"^(tasks +: )\S+()$"),
    (JSON, r'("access": "write", *\n +"bwMiB": )[\d.]+(,)'),
    (JSON, r'("operation": "write"(?:.*\n)+?.*"bwMeanMIB": )[\d.]+(,)'),
    (JSON, r'("operation": "write"(?:.*\n)+?.*"numTasks": )[\d.]+(,)'),
]


#: What is changed in a capture, by what, and what the refusal says.
FAULTS = [
    (TEXT, r"^read .* 0   \n", "", "results of .*a summary of"),
    (TEXT, r"^read .*POSIX.*\n", "", "results of .*a summary of"),
    (TEXT, r"^(read .* 0   \n)", r"\1\1", "missing or doubled"),
    (TEXT, r"^(read .*POSIX.*\n)", r"\1\1", "a summary of"),
    (TEXT, r"^(read .*) 0   $", r"\1 1   ", "missing or doubled"),
    (TEXT, r"^(read .*POSIX +)0$", r"\g<1>0 0", "no row of the summary"),
    (TEXT, r"^(read .*POSIX) +0$", r"\1", "no row of the summary"),
    (TEXT, r"^(read .*\n)(?=\nSummary)", r"\1Abort(1) on node 1\n", "no row of the results"),
    (TEXT, r"bw\(MiB/s\)", "bw(MB/s) ", "unknown head"),
    (TEXT, r"Mean\(MiB\)", "Mean(MB) ", "unknown head"),
    (TEXT, r"^(write +)438\.53( +438\.90)", r"\g<1>439.53\2", "the summary says"),
    (TEXT, r"^(write +\S+ +\S+ +)438\.53", r"\g<1>439.53", "the summary says"),
    (TEXT, r"^(write .*)0\.07297 ", r"\g<1>0.08297 ", "cannot be"),
    (TEXT, r"^(write .*)   32\.0 ", r"\1   16.0 ", "moved 16.0 MiB, expected 32.0"),
    (TEXT, r"^(write .*)   32\.0 ", r"\1   64.0 ", "moved 64.0 MiB, expected 32.0"),
    (TEXT, r"^tasks   ", "tusks   ", "the options lack tasks"),
    (TEXT, r"^(tasks .*: )2", r"\g<1>4", "the test of"),
    (TEXT, r"^(access +: )file-per-process", r"\1single-shared-file", "the test of"),
    (TEXT, r"^(api +: )POSIX", r"\1MPIIO", "the test of"),
    (TEXT, r"^(tasks .*\n)", r"\1\1", "no option, or one twice"),
    (TEXT, r"^IOR-.*\n", "", "JSON report is missing"),
    (TEXT, r"^Finished.*\n", "", "closing line"),
    (TEXT, r"^Options.*\n", "", "Options:"),
    (OLD, r"^(write .*) 1   $", r"\1 2   ", "missing or doubled"),
    (OLD, r"^(read +)3605", r"\g<1>3705", "the summary says"),
    (STONEWALL, r"^(write .*) 531\.0 ", r"\1 1131.0 ", "moved 1131.0 MiB"),
    (JSON, r'"Version"', '"Vorsion"', "lacks 'Version'"),
    (JSON, r'^(.*"bwMeanMIB".*\n)(?=(?:.*\n)+.*"read")', "", "lacks 'bwMeanMIB'"),
    (JSON, r'("operation": )"read"', r'\1"erase"', "unknown operation"),
    (JSON, r'("access": )"read"', r'\1"erase"', "unknown operation"),
    (JSON, r'("access": )"read"', r'\1"write"', "results of .*a summary of"),
    (JSON, r'("tests": )\[', r"\1[{}, ", "2 tests, expected one"),
    (JSON, r'"Finished"', '"Finish"', "lacks 'Finished'"),
    (JSON, r'("keepFile": )0', r"\1false", "is no count"),
    (OLD_JSON, r'("bwMaxMIB": )1727\.3702', r"\g<1>1727.3802", "the summary says"),
]


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ParseError, match="no whole JSON"):
        read("ior", '{"tests" : ' + "[" * 100_000)


PROGRAM = damage.Program(
    "ior",
    GOOD,
    {name: damage.says_of(name, REFUSED) for name in FAILED},
    r"^(?:Finished +: .*\d|})$",
    ["mdtest/v400_mpich_files", "fio/write_end_fsync", "osu/osu_bw"],
    r"lacks|missing",
    cells=CELLS,
    faults=FAULTS,
)
