"""The parser of the OSU Micro-Benchmarks: real captures, read exactly; damage, refused."""

from __future__ import annotations

import re

import damage
import pytest
from damage import changed, figures, read, text_of
from plumbline import parse
from plumbline.parse import ParseError, osu

#: End of a capture's name -> what its refusal says.
REFUSED = {
    "osu_latency_1rank": "title of an OSU program: found 0 times",
    "one_process|three_processes|missing_program|bad_option|m_unknown|help": "title of an OSU",
    "latency_f|latency_G|put_latency_c|neighbor_alltoall|bw_fan_in|bw_fan_out": "title of an OSU",
    # 5.3's osu_init prints neither title nor unit.
    r"v53_\w+_(?:init|bad_value)": "title of an OSU program: found 0 times",
    r"v74_\w+_bad_value|v53_openmpi_cas_latency": "the table has 0 rows",
    # Every rank that a foreign launcher starts is a world of its own.
    r"\w+(?<!init)_(?:mpich|openmpi)_launcher_WRONG": "title of an OSU program: found 0 times",
    r"init_(?:mpich|openmpi)_launcher_WRONG": "title of an OSU program: found [02] times",
    "hello|latency_mt": "no program whose figures are known|title of an OSU program: found 0",
    "mbw_mr_v": "unknown line before the table.*varied",
    "types_all": "cells under .* columns: '# Datatype: MPI_INT.'",
    "v74_mpich_graph_tty": "a line after the table",
    r"v74_openmpi_allreduce_c": "DATA VALIDATION ERROR",
    "cuda_(?:no_device|no_driver|no_memory|not_built|rocm)": "title of an OSU program: found 0",
    "cuda_no_copy": "the table has 0 rows",
    r"mpich_killed_rank": "a line after the table|cells under 2 columns",
}
GOOD = damage.good_of("osu", REFUSED)
FAILED = sorted(set(damage.names_of("osu")) - set(GOOD))

LATENCY = "osu/v74_mpich_latency_full"
FULL = "osu/v74_mpich_allreduce_f"
OVERLAP = "osu/v74_mpich_iallreduce"
RATE = "osu/v74_mpich_mbw_mr"
CHECKED = "osu/v74_mpich_allreduce_c"
TAIL = "osu/v74_mpich_allreduce_z"


#: Column by its start -> end of the metric.
ENDINGS = {
    "Latency": "latency",
    "Avg": "latency",
    "Min L": "latency_min",
    "Max L": "latency_max",
    "Bandwidth": "bandwidth",
    "MB/s": "bandwidth",
    "Messages": "message_rate",
    "Overall": "latency",
    "Compute": "compute",
    "Pure": "pure_latency",
    "Overlap": "overlap",
}


@pytest.mark.parametrize("name", [name for name in GOOD if "init" not in name])
def test_every_cell_is_read(name: str) -> None:
    """Cell by cell, read without any of the parser's care."""
    lines = [line for line in text_of(name).splitlines() if line.strip()]
    head = next(n for n, line in enumerate(lines) if re.search(r"# Size|\(us\)\s+\S|\(us\)$", line))
    columns = re.split(r"\s{2,}", lines[head].replace("# Size", "Size").strip("# "))
    expected = []
    for line in lines[head + 1 :]:
        if line.startswith("--"):
            break
        cells = dict(zip(columns, line.split(), strict=True))
        for column, cell in cells.items():
            for start, ending in ENDINGS.items():
                if column.startswith(start):
                    expected.append((ending, cells.get("Size"), float(cell)))
    foms = read(name).foms
    assert len(foms) == len(expected) > 0
    for fom, (ending, size, value) in zip(foms, expected, strict=True):
        assert fom.metric.endswith(ending)
        assert (fom.size, fom.value) == (None if size is None else int(size), value)


def test_spot_values() -> None:
    found = figures(read("osu/osu_latency"))
    assert found["latency_1"] == (0.17, "us")
    assert found["latency_4194304"] == (579.07, "us")
    assert len(found) == 23
    assert figures(read("osu/osu_bw"))["bandwidth_65536"] == (10292.70, "MB/s")
    assert figures(read("osu/osu_bibw"))["bibandwidth_2097152"] == (23143.91, "MB/s")
    assert figures(read("osu/osu_barrier")) == {"barrier_latency": (0.17, "us")}
    found = figures(read("osu/osu_mbw_mr"))
    assert found["multi_bandwidth_8"] == (121.80, "MB/s")
    assert found["message_rate_8"] == (15224719.23, "message/s")
    found = figures(read("osu/osu_allreduce_f"))
    assert found["allreduce_latency_8"] == (0.25, "us")
    assert found["allreduce_latency_min_8"] == (0.24, "us")
    assert found["allreduce_latency_max_8"] == (0.26, "us")
    found = figures(read(OVERLAP))
    assert found["iallreduce_latency_16"] == (10.35, "us")
    assert found["iallreduce_compute_16"] == (8.44, "us")
    assert found["iallreduce_pure_latency_16"] == (3.72, "us")
    assert found["iallreduce_overlap_16"] == (48.64, "percent")
    assert found["iallreduce_overlap_8"] == (0.0, "percent")
    assert figures(read("osu/v74_mpich_multi_lat"))["multi_latency_16"] == (0.16, "us")
    assert figures(read("osu/v74_mpich_put_bibw"))["put_bibandwidth_8"] == (4.01, "MB/s")
    assert figures(read("osu/v74_mpich_get_latency"))["get_latency_64"] == (1.46, "us")
    assert figures(read("osu/v74_mpich_fop_latency")) == {"fop_latency_1": (0.70, "us")}
    assert figures(read("osu/v53_mpich_put_latency"))["put_latency_0"] == (0.13, "us")
    assert figures(read("osu/v53_mpich_ibarrier")) == {
        "ibarrier_latency": (1.96, "us"),
        "ibarrier_compute": (1.11, "us"),
        "ibarrier_pure_latency": (0.74, "us"),
        "ibarrier_overlap": (0.0, "percent"),
    }


def test_init() -> None:
    output = read("osu/osu_init")
    assert (output.tasks, output.version) == (2, "7.4")
    assert figures(output) == {
        "init_time": (236.0, "ms"),
        "init_time_min": (235.0, "ms"),
        "init_time_max": (237.0, "ms"),
    }


def test_inputs() -> None:
    output = read("osu/osu_mbw_mr")
    assert (output.tasks, output.version) == (None, "7.4")
    assert output.inputs == {
        "program": "osu_mbw_mr",
        "accelerator": "none",
        "buffer": "host",
        "pairs": "1",
        "window_size": "64",
        "datatype": "MPI_CHAR",
        "validation": "off",
    }
    output = read("osu/v53_mpich_put_latency")
    assert output.version == "5.3"
    assert output.inputs["window_creation"] == "MPI_Win_allocate"
    assert output.inputs["synchronization"] == "MPI_Win_flush"
    assert read(CHECKED).inputs["validation"] == "pass"


@pytest.mark.parametrize(
    ("tag", "line", "accelerator", "buffer"),
    [
        ("-CUDA", "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)", "cuda", "device"),
        (
            "-CUDA",
            "# Rank 0 Memory on HOST (H) and Rank 1 Memory on DEVICE (D)",
            "cuda",
            "host-device",
        ),
        ("-ROCM", "", "rocm", None),
        ("-CUDA MANAGED", "", "cuda managed", None),
    ],
)
def test_buffers(tag: str, line: str, accelerator: str, buffer: str | None) -> None:
    text = changed(text_of(LATENCY), "OSU MPI Latency", f"OSU MPI{tag} Latency")
    text = changed(text, r"^(# Size)", rf"{line}\n\1")
    output = read(LATENCY, text)
    assert output.inputs["accelerator"] == accelerator
    assert output.inputs.get("buffer") == buffer
    assert figures(output) == figures(read(LATENCY))


@pytest.mark.parametrize("program", ["latency", "bw", "bibw", "put_latency", "allreduce"])
def test_device_buffers_of_a_cuda_build(program: str) -> None:
    output = read(f"osu/v74_cuda_{program}")
    assert (output.inputs["program"], output.inputs["accelerator"]) == (f"osu_{program}", "cuda")
    # 7.4 says where the buffers were for one-sided programs alone.
    assert output.inputs.get("buffer") == ("device" if program == "put_latency" else None)


@pytest.mark.parametrize("name", ["latency_HH", "latency_plain", "latency_HD", "latency_MD"])
def test_a_title_of_cuda_does_not_say_where_the_buffers_were(name: str) -> None:
    inputs = read(f"osu/v74_cuda_{name}").inputs
    assert inputs["accelerator"] == "cuda"
    assert "buffer" not in inputs


def test_aprun_says_something_after_the_run() -> None:
    said = (
        "Application 2634 resources: utime ~0s, stime ~0s, Rss ~4284, inblocks ~0, outblocks ~0\n"
    )
    assert figures(read(LATENCY, text_of(LATENCY) + said)) == figures(read(LATENCY))
    with pytest.raises(ParseError, match="after the table"):
        read(LATENCY, text_of(LATENCY) + "\nApplication 2634 exit codes: 139\n" + said)


def test_a_run_that_was_killed_has_fewer_sizes() -> None:
    """Nothing in its text says so: the check misses the figures that it declared."""
    found = read("osu/v74_mpich_killed")
    assert [fom.size for fom in found.foms] == [2**k for k in range(10)]


def test_percentiles_stand_in_the_order_that_was_asked_for() -> None:
    """``-z99,90,50``: from right to left they rise."""
    rows = r"^(\d.* )(\S+)( +\S+ +)(\S+)$"
    text = re.sub(rows, r"\1\4\3\2", text_of(TAIL), flags=re.M)
    with pytest.raises(ParseError, match="percentiles out of order"):
        read(TAIL, text)
    text = changed(text, r"P50( Tail.*)P99( Tail)", r"P99\1P50\2")
    assert figures(read(TAIL, text)) == figures(read(TAIL))


def test_titles_are_those_of_programs() -> None:
    assert len({program for program, _ in osu.TITLES.values()}) == len(osu.TITLES) - 1
    assert all(program.startswith("osu_") for program, _ in osu.TITLES.values())


# -- damage --------------------------------------------------------------------------------------


#: Cells, each between two groups: a text is refused where one is no number.
CELLS = [
    (LATENCY, r"^(1024 +)\S+()$"),
    ("osu/v74_mpich_bw", r"^(16 +)\S+()$"),
    (FULL, r"^(16 +)\S+(.*)$"),
    (FULL, r"^(16 +\S+ +)\S+(.*)$"),
    (FULL, r"^(16 +\S+ +\S+ +)\S+(.*)$"),
    (FULL, r"^(16 +\S+ +\S+ +\S+ +)\S+()$"),
    (OVERLAP, r"^(16 +)\S+(.*)$"),
    (OVERLAP, r"^(16 .* )\S+()$"),
    (RATE, r"^(16 +)\S+(.*)$"),
    (RATE, r"^(16 .* )\S+()$"),
    ("osu/v74_mpich_barrier", r"^( +)\S+()$"),
    ("osu/v74_mpich_init", r"^(.*avg: )\d+( ms)$"),
]


#: What is changed in a capture, by what, and what the refusal says.
FAULTS = [
    (LATENCY, r"^1024 .*\n", "", "missing or doubled"),
    (LATENCY, r"^1024( .*)\n", r"1024\1\n1024\1\n", "missing or doubled"),
    (LATENCY, r"^1024 ", "512  ", "missing or doubled"),
    (LATENCY, r"^1024 ", "1024.0 ", "no whole number"),
    (LATENCY, r"^(1024 .*)$", r"\1 1.00", "3 cells under 2 columns"),
    (LATENCY, r"^(1024) .*$", r"\1", "1 cells under 2 columns"),
    (LATENCY, r"^(1024 .*)\n", r"\1", "cells under 2 columns|two decimals"),
    (LATENCY, r"^(1024 +\d+\.\d)\d$", r"\1", "two decimals"),
    (LATENCY, r"^(1024 .*)\n", r"\1\n\n", "after the table"),
    (LATENCY, r"Latency\(us\)", "Latency(ms)", "unknown"),
    (LATENCY, r"^# Size.*\n", "", "unknown line before the table"),
    (LATENCY, r"^(# Size)(.*)$", r"\1\2\2", "unknown head"),
    (LATENCY, r"Avg Latency\(us\)", "Avg Latency(us)  Overlap(%)", "unknown head"),
    (LATENCY, r"^# Datatype.*\n", r"\g<0>\g<0>", "told twice"),
    (LATENCY, r"^(# OSU.*\n)", r"\1mpirun: a warning\n", "unknown line before"),
    (LATENCY, r"Latency Test", "Letency Test", "no program"),
    (LATENCY, r" v7.4", "", "title"),
    (LATENCY, r"^# OSU MPI Latency", "# OSU MPI Barrier Latency", "a head that it has not"),
    ("osu/v74_mpich_barrier", r"Barrier Latency", "Allreduce Latency", "a head"),
    ("osu/v74_mpich_barrier", r"^( +\d.*\n)", r"\1\1", "the table has 2 rows"),
    (FULL, r"^(16 +)\S+", r"\g<1>99.00", "minimum, mean, maximum"),
    (FULL, r"^(16 +)\S+", r"\g<1>0.00", "minimum, mean, maximum"),
    (OVERLAP, r"^(16 .* )\S+$", r"\g<1>100.01", "overlap"),
    (RATE, r"^(16 +)\S+", r"\g<1>272.40", "cannot be"),
    (TAIL, r"^(16 .* )0\.58( +0\.72 +1\.00)$", r"\g<1>0.73\2", "percentiles out of order"),
    (TAIL, r"^(16 .* 0\.72 +)1\.00$", r"\g<1>0.71", "percentiles out of order"),
    (CHECKED, r"^(16 .* )Pass$", r"\g<1>Fail", "validation says 'Fail'"),
    (CHECKED, r"^(16 .* )Pass$", r"\g<1>Psas", "validation says"),
    ("osu/v74_mpich_init", r"avg: \d+", "avg: 5", "minimum, mean, maximum"),
    ("osu/v74_mpich_init", r"avg: (\d+) ms", r"avg: \1 s", "no times"),
]


def test_without_a_local_rank_every_process_takes_the_first_gpu() -> None:
    """What ``omb_get_local_rank()`` of 7.4 writes on standard error; the program exits 0."""
    said = (
        "plumbline-task 0 node1 0-1 0 - - 0 -\n"
        "Warning: OMB could not identify the local rank of the process.\n"
        "         This can lead to multiple processes using the same GPU.\n"
        "         Please use the get_local_rank script in the OMB repo for this.\n"
    )
    with pytest.raises(ParseError, match="OMB could not identify the local rank"):
        parse.hold_against_errors("osu", said)
    parse.hold_against_errors("osu", said.splitlines()[0])


PROGRAM = damage.Program(
    "osu",
    GOOD,
    {name: damage.says_of(name, REFUSED) for name in FAILED},
    None,
    ["gpcnet/network_test_2fakenodes_2ranks", "imb/pingpong"],
    "title",
    cells=CELLS,
    faults=FAULTS,
)
