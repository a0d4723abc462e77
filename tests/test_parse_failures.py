"""What the programs print when they fail, or measure something else, and nevertheless print a table
and exit with 0: the messages are those of their sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plumbline import parse
from plumbline.parse import ParseError

CAPTURES = Path(__file__).with_name("captures")
PROGRAM_ERROR = "output.program-error"


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


def changed(text: str, pattern: str, new: str) -> str:
    """The text with one change."""
    found, count = re.subn(pattern, new, text, count=1, flags=re.M)
    assert count == 1, pattern
    return found


def refusal(benchmark: str, text: str) -> str:
    """The reason code of the refusal of an output; empty if it is accepted."""
    try:
        assert parse.parse(benchmark, text).foms
    except ParseError as err:
        return err.code
    return ""


def refusal_of_errors(benchmark: str, text: str) -> str:
    try:
        parse.check_stderr(benchmark, text)
    except ParseError as err:
        return err.code
    return ""


@pytest.mark.parametrize(
    "line",
    [
        "fio: end_fsync failed for file /scratch/plumbline.0.0",
        "fio: 1 job failed to start",
        "fio: 2 jobs failed to start",
        "syncfs /scratch failed",
        "open /scratch for syncfs failed",
    ],
)
def test_fio_data_that_is_not_stored(line: str) -> None:
    """``do_io()``, ``fio_syncfs()`` and ``run_threads()`` of backend.c: the job has no error."""
    text = capture("fio/write_end_fsync.out")
    assert refusal("fio", text) == ""
    assert refusal("fio", f"{line}\n{text}") == PROGRAM_ERROR
    assert refusal_of_errors("fio", f"{line}\n") == PROGRAM_ERROR


@pytest.mark.parametrize("direct, code", [("0", PROGRAM_ERROR), ("1", "")])
def test_fio_a_page_cache_that_was_not_dropped(direct: str, code: str) -> None:
    """``__file_invalidate_cache()`` of filesetup.c: "just warn and continue on our way"."""
    line = "fio: cache invalidation of /scratch/plumbline.0.0 failed: Input/output error\n"
    text = capture("fio/read_1m_direct.out")
    assert '"direct" : "1"' in text
    assert refusal("fio", line + text.replace('"direct" : "1"', f'"direct" : "{direct}"')) == code


@pytest.mark.parametrize("which", ["local", "global"])
def test_hpcc_updates_that_are_not_verified(which: str) -> None:
    """``HPCC_Power2NodesMPIRandomAccessCheck()``: the number of errors is not set."""
    line = f"Failed to allocate memory for {which} buckets.\n"
    assert refusal_of_errors("hpcc", line) == PROGRAM_ERROR
    assert refusal_of_errors("hpcc", "Failed to allocate memory for something else.\n") == ""


def test_imb_of_another_mode() -> None:
    """``IMB_show_selections()`` of a build with IMB_OPTIONAL."""
    lines = (
        "#\n\n# !! Attention: results have been achieved in\n# !! IMB_OPTIONAL mode.\n"
        "# !! Results may differ from standard case.\n#\n"
    )
    text = capture("imb/pingpong.out")
    assert refusal("imb", text) == ""
    marked = changed(text, r"^# List of Benchmarks to run:", f"{lines}\\g<0>")
    assert refusal("imb", marked) == PROGRAM_ERROR


def test_mdtest_a_backend_that_cannot_rename() -> None:
    """``rename_dir_test()`` returns at once, and its time gives a rate."""
    text = capture("mdtest/v400_mpich_files_and_dirs.out")
    assert "directory_rename_rate" in {fom.metric for fom in parse.parse("mdtest", text).foms}
    line = "WARNING: Backend doesn't support rename\n\n"
    found = parse.parse("mdtest", changed(text, r"^\n?SUMMARY", f"{line}\\g<0>")).foms
    assert {fom.metric for fom in found} == {
        fom.metric for fom in parse.parse("mdtest", text).foms
    } - {"directory_rename_rate"}


@pytest.mark.parametrize(
    "name", ["v400_mpich_posix_stonewall.out", "v330_mpich_posix_stonewall.out",
             "v400_mpich_posix_stonewall_json.out"],
)  # fmt: skip
def test_ior_a_file_that_lost_data(name: str) -> None:
    """``CheckFileSize()`` warns as of a stonewall, after which no less is stored than was moved."""
    text = capture(f"ior/{name}")
    assert refusal("ior", text) == ""
    size = r"(Stat\(\) of aggregate file size\s+= )\d+"
    assert refusal("ior", changed(text, size, r"\g<1>4096")) == PROGRAM_ERROR
