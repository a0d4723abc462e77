"""The table of fio, and what its reports say."""

from __future__ import annotations

import json
import re

import pytest
from captured import PROGRAM_ERROR, Program, figures, read, refusal_of_errors, text_of, whole

FIO = "fio/write_end_fsync"
HUGE = "9" * 400
LONG = "9" * 5000

PROGRAM = Program(
    "fio",
    failed="normal_report|read_missing|readwrite|write_2jobs_ungrouped|write_too_large",
    closing=r"^}",
    others=["ior/v400_mpich_json", "osu/osu_bw"],
    reported="read_missing",
    strict=True,
    cells=[
        ("fio/write_end_fsync", r'^( +"bw_bytes" : )[1-9]\d*(,)$'),
        ("fio/write_end_fsync", r'^( +"bw" : )[1-9]\d*(,)$'),
        ("fio/write_end_fsync", r'^( +"io_bytes" : )[1-9]\d*(,)$'),
        ("fio/write_end_fsync", r'^( +"runtime" : )[1-9]\d*(,)$'),
    ],
    faults=[
        (FIO, r"^}\s*\Z", r"}\nfio: terminating on signal 2\n", PROGRAM_ERROR),
        (FIO, r"\A", "\nfio: terminating on signal 15\n", PROGRAM_ERROR),
        (FIO, r"^}\s*\Z", r"}\nfio: a later line\n"),
        (FIO, r'"error" : 0', '"error" : 5', PROGRAM_ERROR),
        (FIO, r'"error" : 0', '"error" : "5"'),
        (FIO, r'"error" : 0', '"error" : false'),
        (FIO, r'^ +"error" : 0,\n', ""),
        (FIO, r'"fio-3.33"', '"oif-3.33"'),
        (FIO, r'"fio-3.33"', "3.33"),
        (FIO, r'("bw_bytes" : )([1-9]\d*)', "UP"),
        (FIO, r'("bw" : )([1-9]\d*)', "UP"),
        (FIO, r'("bw" : )([1-9]\d*)', "BINARY"),
        (FIO, r'("io_bytes" : )([1-9]\d*)', "HALF"),
        (FIO, r'("runtime" : )([1-9]\d*)', "HALF"),
        (FIO, r'("bw" : [1-9](?:.*\n)+?.*"short_ios" : )0', r"\g<1>1", PROGRAM_ERROR),
        (FIO, r'("bw" : [1-9](?:.*\n)+?.*"drop_ios" : )0', r"\g<1>1", PROGRAM_ERROR),
        (FIO, r'("read" : {\n +"io_bytes" : )0', r"\g<1>4096"),
        (FIO, r'"bw_bytes"( : [1-9])', r'"bw_mib"\1'),
        (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\1[],"),
        (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\g<1>1,"),
        (FIO, r'("jobs" : )\[(?:.*\n)+? +\],', r"\1[[]],"),
        (FIO, r'("error" : 0),', r"\1"),
        (FIO, r'^( +"bw_bytes" : )([1-9]\d*,\n)', r"\g<1>5,\n\1\2"),
        (FIO, r'"runtime" : [1-9]\d*', f'"runtime" : {LONG}'),
        (FIO, r'"io_bytes" : [1-9]\d*', f'"io_bytes" : {HUGE}'),
    ],
)


@pytest.mark.parametrize("name", PROGRAM.good)
def test_fio_reads_bytes_a_second(name: str) -> None:
    text = text_of(name)
    direction = "write" if "write" in name else "read"
    (rate,) = {int(found) for found in re.findall(r'"bw_bytes" : (\d+)', text)} - {0}
    assert whole(name) == {f"{direction}_bandwidth": (float(rate), "B/s")}
    (moved,) = {int(found) for found in re.findall(r'"io_bytes" : (\d+)', text)} - {0}
    (took,) = {int(found) for found in re.findall(r'"runtime" : (\d+)', text)} - {0}
    assert rate == pytest.approx(moved / took * 1000, rel=0.02)


def test_fio_spot_value_after_warnings() -> None:
    text = "fio: this is a warning\nnote: {\n" + text_of("fio/write_1m_direct_json")
    found = figures(read("fio/write_1m_direct_json", text))
    assert found == {"write_bandwidth": (2606169475.0, "B/s")}


@pytest.mark.parametrize(
    "line",
    [
        "fio: pid=23581, got signal=9",
        "fio: pid=23581 disappeared 10",
        "fio: job 'plumbline' (state=5) hasn't exited in 300 seconds, it appears to be stuck. "
        "Doing forceful exit of this job.",
    ],
)
def test_fio_goes_on_without_a_job(line: str) -> None:
    """It prints the report of what was moved, and exits with 0."""
    assert refusal_of_errors("fio", f"{line}\n") == PROGRAM_ERROR
    assert refusal_of_errors("fio", "fio: file hash not empty on exit\n") is None


def test_fio_is_read_as_json() -> None:
    """The layout of the JSON does not matter."""
    text = json.dumps(json.loads(text_of(FIO)))
    assert figures(read(FIO, text)) == whole(FIO)
