"""The table of the OSU Micro-Benchmarks, and what their outputs say."""

from __future__ import annotations

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
    refusal_of_errors,
    text_of,
    whole,
)
from plumbline.parse import osu

OSU_LATENCY = "osu/v74_mpich_latency_full"
OSU_FULL = "osu/v74_mpich_allreduce_f"
OSU_OVERLAP = "osu/v74_mpich_iallreduce"
OSU_RATE = "osu/v74_mpich_mbw_mr"
OSU_CHECKED = "osu/v74_mpich_allreduce_c"
OSU_TAIL = "osu/v74_mpich_allreduce_z"
PROGRAM = Program(
    "osu",
    failed="osu_latency_1rank|one_process|three_processes|missing_program|bad_option|m_unknown|help"
    "|latency_f|latency_G|put_latency_c|neighbor_alltoall|bw_fan_in|bw_fan_out"
    # 5.3's osu_init prints neither title nor unit.
    r"|v53_\w+_(?:init|bad_value)|v74_\w+_bad_value|v53_openmpi_cas_latency"
    # Every rank that a foreign launcher starts is a world of its own.
    "|(?:mpich|openmpi)_launcher_WRONG"
    "|hello|latency_mt|mbw_mr_v|types_all|v74_mpich_graph_tty|v74_openmpi_allreduce_c"
    "|cuda_(?:no_device|no_driver|no_memory|not_built|rocm|no_copy)|mpich_killed_rank"
    "|nccl_(?:allreduce_c|latency_c|bw_version|error_comm|error_table|no_device|no_memory"
    "|one_gpu_refused)",
    closing=None,
    others=["gpcnet/network_test_2fakenodes_2ranks", "imb/pingpong"],
    reported="v74_openmpi_allreduce_c",
    cells=[
        (OSU_LATENCY, r"^(1024 +)\S+()$"),
        ("osu/v74_mpich_bw", r"^(16 +)\S+()$"),
        (OSU_FULL, r"^(16 +)\S+(.*)$"),
        (OSU_FULL, r"^(16 +\S+ +)\S+(.*)$"),
        (OSU_FULL, r"^(16 +\S+ +\S+ +)\S+(.*)$"),
        (OSU_FULL, r"^(16 +\S+ +\S+ +\S+ +)\S+()$"),
        (OSU_OVERLAP, r"^(16 +)\S+(.*)$"),
        (OSU_OVERLAP, r"^(16 .* )\S+()$"),
        (OSU_RATE, r"^(16 +)\S+(.*)$"),
        (OSU_RATE, r"^(16 .* )\S+()$"),
        ("osu/v74_mpich_barrier", r"^( +)\S+()$"),
        ("osu/v74_mpich_init", r"^(.*avg: )\d+( ms)$"),
    ],
    faults=[
        (OSU_LATENCY, r"^1024 .*\n", ""),
        (OSU_LATENCY, r"^1024( .*)\n", r"1024\1\n1024\1\n"),
        (OSU_LATENCY, r"^1024 ", "512  "),
        (OSU_LATENCY, r"^1024 ", "1024.0 "),
        (OSU_LATENCY, r"^(1024 .*)$", r"\1 1.00"),
        (OSU_LATENCY, r"^(1024) .*$", r"\1"),
        (OSU_LATENCY, r"^(1024 .*)\n", r"\1"),
        (OSU_LATENCY, r"^(1024 +\d+\.\d)\d$", r"\1"),
        (OSU_LATENCY, r"^(1024 .*)\n", r"\1\n\n"),
        (OSU_LATENCY, r"Latency\(us\)", "Latency(ms)"),
        (OSU_LATENCY, r"^# Size.*\n", ""),
        (OSU_LATENCY, r"^(# Size)(.*)$", r"\1\2\2"),
        (OSU_LATENCY, r"Avg Latency\(us\)", "Avg Latency(us)  Overlap(%)"),
        (OSU_LATENCY, r"^# Datatype.*\n", r"\g<0>\g<0>"),
        (OSU_LATENCY, r"^(# OSU.*\n)", r"\1mpirun: a warning\n"),
        (OSU_LATENCY, r"Latency Test", "Letency Test"),
        (OSU_LATENCY, r" v7.4", ""),
        (OSU_LATENCY, r"^# OSU MPI Latency", "# OSU MPI Barrier Latency"),
        ("osu/v74_mpich_barrier", r"Barrier Latency", "Allreduce Latency"),
        ("osu/v74_mpich_barrier", r"^( +\d.*\n)", r"\1\1"),
        (OSU_FULL, r"^(16 +)\S+", r"\g<1>99.00"),
        (OSU_FULL, r"^(16 +)\S+", r"\g<1>0.00"),
        (OSU_OVERLAP, r"^(16 .* )\S+$", r"\g<1>100.01"),
        (OSU_RATE, r"^(16 +)\S+", r"\g<1>272.40"),
        (OSU_TAIL, r"^(16 .* )0\.58( +0\.72 +1\.00)$", r"\g<1>0.73\2"),
        (OSU_TAIL, r"^(16 .* 0\.72 +)1\.00$", r"\g<1>0.71"),
        (OSU_CHECKED, r"^(16 .* )Pass$", r"\g<1>Fail", PROGRAM_ERROR),
        (OSU_CHECKED, r"^(16 .* )Pass$", r"\g<1>Psas", PROGRAM_ERROR),
        ("osu/v74_mpich_init", r"avg: \d+", "avg: 5"),
        ("osu/v74_mpich_init", r"avg: (\d+) ms", r"avg: \1 s"),
    ],
)

#: Column by its start -> end of the metric.
OSU_ENDINGS = {
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


@pytest.mark.parametrize("name", [name for name in PROGRAM.good if "init" not in name])
def test_osu_every_cell_is_read(name: str) -> None:
    """Cell by cell, read without the parser's checks."""
    lines = [line for line in text_of(name).splitlines() if line.strip()]
    head = next(n for n, line in enumerate(lines) if re.search(r"# Size|\(us\)\s+\S|\(us\)$", line))
    text = lines[head].replace("# Size", "Size").strip("# ")
    columns = re.split(r"\s{2,}| (?=P\d+ Tail BW)", text)
    expected = []
    for line in lines[head + 1 :]:
        if line == "# Datatype: MPI_CHAR.":
            continue
        if line.startswith("--"):
            break
        cells = dict(zip(columns, line.split(), strict=True))
        for column, cell in cells.items():
            for start, ending in OSU_ENDINGS.items():
                if column.startswith(start):
                    expected.append((ending, cells.get("Size"), float(cell)))
    foms = read(name).foms
    assert len(foms) == len(expected) > 0
    for fom, (ending, size, value) in zip(foms, expected, strict=True):
        assert fom.metric.endswith(ending)
        assert (fom.size, fom.value) == (None if size is None else int(size), value)


#: Capture -> some of its figures, each with its unit.
OSU_FIGURES = {
    "osu/osu_latency": "latency_1 us",
    "osu/osu_bw": "bandwidth_65536 MB/s",
    "osu/osu_bibw": "bibandwidth_2097152 MB/s",
    "osu/osu_barrier": "barrier_latency us",
    "osu/osu_mbw_mr": "multi_bandwidth_8 MB/s, message_rate_8 message/s",
    "osu/osu_allreduce_f": "allreduce_latency_8 us, allreduce_latency_min_8 us",
    OSU_OVERLAP: "iallreduce_latency_16 us, iallreduce_compute_16 us, "
    "iallreduce_pure_latency_16 us, iallreduce_overlap_16 percent",
    "osu/v71_bibw": "bibandwidth_4194304 MB/s",
    "osu/v71_mbw_mr": "multi_bandwidth_1 MB/s, message_rate_1 message/s",
    "osu/v71_multi_lat": "multi_latency_1 us",
    "osu/v74_mpich_multi_lat": "multi_latency_16 us",
    "osu/v74_openmpi_mbw_mr_z": "multi_bandwidth_4 MB/s, message_rate_64 message/s",
    "osu/v74_openmpi_put_bw_z": "put_bandwidth_4 MB/s",
    "osu/v74_mpich_put_bibw": "put_bibandwidth_8 MB/s",
    "osu/v74_mpich_get_latency": "get_latency_64 us",
    "osu/v74_mpich_fop_latency": "fop_latency_1 us",
    "osu/v53_mpich_put_latency": "put_latency_0 us",
    "osu/v53_mpich_ibarrier": "ibarrier_latency us, ibarrier_overlap percent",
}


@pytest.mark.parametrize("name", OSU_FIGURES)
def test_osu_names_and_units(name: str) -> None:
    found = {f"{variable} {unit}" for variable, (_, unit) in whole(name).items()}
    assert {*OSU_FIGURES[name].split(", ")} <= found


def test_osu_init() -> None:
    assert whole("osu/osu_init") == {
        "init_time": (236.0, "ms"),
        "init_time_min": (235.0, "ms"),
        "init_time_max": (237.0, "ms"),
    }


def test_osu_inputs() -> None:
    assert read("osu/osu_mbw_mr").inputs == {
        "program": "osu_mbw_mr",
        "accelerator": "none",
        "buffer": "host",
        "pairs": "1",
        "window_size": "64",
        "datatype": "MPI_CHAR",
        "validation": "off",
    }
    inputs = read("osu/v53_mpich_put_latency").inputs
    assert inputs["window_creation"] == "MPI_Win_allocate"
    assert inputs["synchronization"] == "MPI_Win_flush"
    assert read(OSU_CHECKED).inputs["validation"] == "pass"


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
def test_osu_buffers(tag: str, line: str, accelerator: str, buffer: str | None) -> None:
    text = changed(text_of(OSU_LATENCY), "OSU MPI Latency", f"OSU MPI{tag} Latency")
    text = changed(text, r"^(# Size)", rf"{line}\n\1")
    output = read(OSU_LATENCY, text)
    assert output.inputs["accelerator"] == accelerator
    assert output.inputs.get("buffer") == buffer
    assert figures(output) == whole(OSU_LATENCY)


@pytest.mark.parametrize("program", ["latency", "bw", "bibw", "put_latency", "allreduce"])
def test_osu_device_buffers_of_a_cuda_build(program: str) -> None:
    output = read(f"osu/v74_cuda_{program}")
    assert (output.inputs["program"], output.inputs["accelerator"]) == (f"osu_{program}", "cuda")
    # 7.4 says where the buffers were for one-sided programs alone.
    assert output.inputs.get("buffer") == ("device" if program == "put_latency" else None)


@pytest.mark.parametrize("name", ["latency_HH", "latency_plain", "latency_HD", "latency_MD"])
def test_osu_a_title_of_cuda_does_not_say_where_the_buffers_were(name: str) -> None:
    inputs = read(f"osu/v74_cuda_{name}").inputs
    assert inputs["accelerator"] == "cuda"
    assert "buffer" not in inputs


XCCL_COLLECTIVES = ["allgather", "allreduce", "alltoall", "bcast", "reduce", "reduce_scatter"]


@pytest.mark.parametrize("program", XCCL_COLLECTIVES)
def test_osu_collectives_over_nccl(program: str) -> None:
    output = read(f"osu/v74_nccl_{program}")
    assert (output.tasks, output.version) == (2, "7.4")
    assert output.inputs["program"] == f"osu_xccl_{program}"
    assert output.inputs["accelerator"] == "cuda"
    assert {fom.metric for fom in output.foms} == {f"xccl_{program}_latency"}


def test_osu_pairs_over_nccl_print_no_title() -> None:
    latency = read("osu/v74_nccl_latency")
    expected = {"accelerator": "cuda", "buffer": "device", "validation": "off"}
    assert latency.inputs == expected | {"program": "osu_xccl_latency"}
    assert (latency.tasks, latency.version) == (2, "")
    assert figures(latency)["xccl_latency_8"] == (2548.50, "us")
    # Without a smallest size, the first message is empty.
    assert read("osu/v74_nccl_latency_plain").foms[0].size == 0
    for program in ("bw", "bibw"):
        output = read(f"osu/v74_nccl_{program}")
        assert output.inputs == expected
        assert {fom.metric for fom in output.foms} == {"xccl_bandwidth"}


@pytest.mark.parametrize("program", ["latency", "bw", "allreduce", "alltoall"])
def test_osu_over_rccl(program: str) -> None:
    output = read(f"osu/v74_rccl_{program}")
    assert output.inputs["accelerator"] == "rocm"
    assert {fom.metric.partition("_")[0] for fom in output.foms} == {"xccl"}


@pytest.mark.parametrize(("tasks", "latency"), [(8, 8955.18), (16, 13482.19)])
def test_osu_collective_of_real_gpus(tasks: int, latency: float) -> None:
    output = read(f"osu/v75_nccl_allreduce_{tasks}gpus")
    assert (output.tasks, output.version) == (tasks, "7.5")
    assert figures(output) == {"xccl_allreduce_latency_1073741824": (latency, "us")}


@pytest.mark.parametrize("name", ["allreduce", "latency"])
def test_osu_version_of_nccl(name: str) -> None:
    assert read(f"osu/v74_nccl_{name}_version").tasks == 2


@pytest.mark.parametrize("name", ["osu/v74_nccl_allreduce", "osu/v74_nccl_bw"])
def test_osu_lines_of_ranks_may_come_late(name: str) -> None:
    """A launcher passes on what the ranks print in any order."""
    text = text_of(name)
    late = text.removeprefix("#Using NCCL\n") + "#Using NCCL\n"
    assert read(name, late) == read(name)
    assert refusal(name, "#Using RCCL\n" + text) == NOT_PARSED
    # With NCCL_DEBUG, NCCL prints an error between the lines: before 2.30 the first one.
    for said in ("Duplicate GPU detected", "Multiple Ranks are using the same GPU/Partition."):
        warning = f"n1:12:34 [0] init.cc:1234 NCCL WARN {said}\n"
        assert refusal(name, changed(text, r"^(# Size.*\n)", rf"\1{warning}")) == NOT_PARSED


def test_osu_a_run_that_was_killed_has_fewer_sizes() -> None:
    """Nothing in its text says so: the check misses the figures that it declared."""
    found = read("osu/v74_mpich_killed")
    assert [fom.size for fom in found.foms] == [2**k for k in range(10)]


def test_osu_percentiles_stand_in_the_order_that_was_asked_for() -> None:
    """``-z99,90,50``: from right to left they rise."""
    rows = r"^(\d.* )(\S+)( +\S+ +)(\S+)$"
    text = re.sub(rows, r"\1\4\3\2", text_of(OSU_TAIL), flags=re.M)
    assert refusal(OSU_TAIL, text) == NOT_PARSED
    text = changed(text, r"P50( Tail.*)P99( Tail)", r"P99\1P50\2")
    assert figures(read(OSU_TAIL, text)) == whole(OSU_TAIL)


def test_osu_percentiles_of_bandwidths() -> None:
    """Their names leave one blank between the columns."""
    name = "osu/v74_openmpi_bw_zc"
    assert read(name).inputs["validation"] == "pass"
    text = text_of(name)
    assert refusal(name, changed(text, "P5 Tail BW", "P5 Tail Lat")) == NOT_PARSED
    assert refusal(name, changed(text, "P5( Tail.*)", r"P100\1")) == NOT_PARSED


@pytest.mark.parametrize(
    ("name", "datatype", "rows"),
    [("bw_cb", "MPI_CHAR", 17), ("mbw_mr_cb", "MPI_CHAR", 34), ("iallreduce_c", "MPI_INT", 44)],
)
def test_osu_7_2_as_the_checks_validate(name: str, datatype: str, rows: int) -> None:
    output = read(f"osu/v72_mpich_{name}")
    assert (output.version, len(output.foms)) == ("7.2", rows)
    assert (output.inputs["validation"], output.inputs["datatype"]) == ("pass", datatype)


def test_osu_the_datatype_below_the_header() -> None:
    """7.1 to 7.3 print it there in tests between two tasks."""
    output = read("osu/v71_mbw_mr")
    assert output.version == "7.1"
    assert output.inputs == {
        "program": "osu_mbw_mr",
        "accelerator": "none",
        "buffer": "host",
        "pairs": "1024",
        "window_size": "64",
        "datatype": "MPI_CHAR",
        "validation": "off",
    }
    name, line = "osu/v71_bibw", "# Datatype: MPI_CHAR.\n"
    text = text_of(name)
    assert refusal(name, text.replace(line, 2 * line)) == NOT_PARSED
    assert refusal(name, changed(text, r"^(# OSU.*\n)", rf"\1{line}")) == NOT_PARSED
    # Only osu_mbw_mr prints its title twice.
    assert refusal(name, changed(text, r"^(# OSU.*\n)", r"\1\1")) == NOT_PARSED
    text = changed(text, "MPI Bi", "MPI-CUDA Bi")
    buffers = "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n"
    output = read(name, changed(text, r"^(# Size)", rf"{buffers}\1"))
    assert (output.inputs["buffer"], output.inputs["datatype"]) == ("device", "MPI_CHAR")
    assert figures(output) == whole(name)


def test_osu_titles_are_those_of_programs() -> None:
    assert len({program for program, _ in osu.TITLES.values()}) == len(osu.TITLES) - 1
    assert all(program.startswith("osu_") for program, _ in osu.TITLES.values())


def test_osu_without_a_local_rank_every_process_takes_the_first_gpu() -> None:
    """What ``omb_get_local_rank()`` of 7.4 writes on standard error; the program exits 0."""
    report = "plumbline-task 0 node1 0-1 0 - - 0 -\n"
    warning = (
        "Warning: OMB could not identify the local rank of the process.\n"
        "         This can lead to multiple processes using the same GPU.\n"
        "         Please use the get_local_rank script in the OMB repo for this.\n"
    )
    assert refusal_of_errors("osu", report + warning) == PROGRAM_ERROR
    assert refusal_of_errors("osu", report) is None
