"""The table of BabelStream, and what its outputs say."""

from __future__ import annotations

import re

import pytest
from captured import (
    PROGRAM_ERROR,
    Program,
    changed,
    figures,
    path_of,
    read,
    refusal,
    text_of,
    truncate,
    whole,
)
from plumbline.parse import ParseError, babelstream

BABEL_TABLE = "babelstream/main_omp"
BABEL_OLD = "babelstream/omp"
BABEL_CSV = "babelstream/omp_csv"
BABEL_TRIAD = "babelstream/v50_omp_triad_only"
PROGRAM = Program(
    "babelstream",
    # Main stops at a failed validation, before the table.
    failed="help|list|print_names|bad_option|bad_size|one_time|only_wrong|killed|no_memory"
    "|main_(?:cuda_)?broken|main_broken_csv|v[45]0_cuda_odd_size"
    "|cuda_(?:no_driver|no_device|third|illegal)",
    closing=r"^(?:Bandwidth|Dot|Nstream|Copy|Triad) .*\n",
    others=["osu/osu_bw", "hpcc/n400_2ranks"],
    cells=[
        (BABEL_TABLE, r"^(Add +)\S+(.*)$"),
        (BABEL_TABLE, r"^(Add +\S+ +)\S+(.*)$"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+( *)$"),
        (BABEL_CSV, r"^(Add,20,33554432,8,)[^,]+(.*)$"),
        (BABEL_CSV, r"^(Add,20,33554432,8,[^,]+,)[^,]+(.*)$"),
        (BABEL_CSV, r"^(Add,20,)\d+(.*)$"),
        (BABEL_TRIAD, r"^(Bandwidth .*:  )\S+()$"),
        (BABEL_TRIAD, r"^(Runtime .*: )\S+()$"),
    ],
    faults=[
        (BABEL_TABLE, r"^Add .*\n", ""),
        (BABEL_TABLE, r"^(Add .*\n)", r"\1\1"),
        (BABEL_TABLE, r"^(Add .*)$", r"\1 1.00000"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+) .*$", r"\1"),
        (BABEL_TABLE, r"^Add ", "Sum "),
        (BABEL_TABLE, r"^(Add .*\n)", r"\1Abort(1)\n"),
        (BABEL_TABLE, r"MB/s  ", "MFlops"),
        (BABEL_TABLE, r"MB/s  ", "MiB/s "),
        (BABEL_TABLE, r"MB/s  ", "GB/s  "),
        (BABEL_TABLE, r"^(Add +)\d", r"\g<1>9"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+", r"\g<1>9.00000"),
        (BABEL_TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+", r"\g<1>0.00000"),
        (BABEL_TABLE, r"^(Number of elements: )\d+", r"\g<1>1024"),
        (BABEL_TABLE, r"^(Precision: )double", r"\1float"),
        (BABEL_TABLE, r"^(Precision: )double", r"\1half"),
        (BABEL_TABLE, r"^Version.*\n", ""),
        (BABEL_TABLE, r"^Array size.*$", "Array size: big"),
        (BABEL_TABLE, r"^(Implementation.*\n)", r"\1\1"),
        (BABEL_TABLE, r"Classic kernels", "All kernels"),
        (BABEL_CSV, r"^Add,.*\n", ""),
        (BABEL_CSV, r"^(Add,.*\n)", r"\1\1"),
        (BABEL_CSV, r"^Add,20,", "Add,30,"),
        (BABEL_CSV, r"^(Add,.*)$", r"\1,1"),
        (BABEL_CSV, r"^(Add,20,33554432,8,)3", r"\g<1>9"),
        (BABEL_CSV, r"^(function.*)max_mbytes", r"\1max_mibytes"),
        (BABEL_CSV, r"^(function.*)max_mbytes", r"\1max_mflops"),
        (BABEL_CSV, r"^(Copy,20,33554432,)8", r"\g<1>2"),
        (BABEL_TRIAD, r"^Runtime.*\n", ""),
        (BABEL_TRIAD, r"GB/s", "GFlop/s"),
        (BABEL_TRIAD, r"^(Running triad )\d+", r"\g<1>2"),
        (BABEL_TRIAD, r"^Bandwidth.*$", "Bandwidth: 5"),
    ],
)


def stderr_of(name: str) -> str:
    """The standard error of a run."""
    path = path_of(name).with_suffix(".err")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@pytest.mark.parametrize("name", PROGRAM.good)
def test_babelstream_every_rate_is_read(name: str) -> None:
    """Row by row, read without the parser's checks."""
    kernels = {"Copy", "Mul", "Add", "Triad", "Dot", "Nstream"}
    expected = {}
    for line in text_of(name).splitlines():
        kernel, *_ = re.split(r"[\s,]", line)
        if kernel in kernels:
            rate = line.split(",")[4] if "csv" in name else line[12:24]
            expected[kernel.lower()] = float(rate)
    alone = re.search(r"^Bandwidth \((\w+)/s\): +(\S+)$", text_of(name), re.M)
    if alone:
        expected = {"triad": float(alone[2])}
    found = whole(name)
    assert {kernel: value for kernel, (value, _) in found.items()} == expected
    assert len({unit for _, unit in found.values()}) == 1


def test_babelstream_spot_values() -> None:
    output = read(BABEL_OLD)
    assert figures(output) == {
        "copy": (37223.630, "MB/s"),
        "mul": (36750.766, "MB/s"),
        "add": (37671.726, "MB/s"),
        "triad": (38894.460, "MB/s"),
        "dot": (40296.696, "MB/s"),
    }
    assert output.inputs == {
        "implementation": "OpenMP",
        "precision": "double",
        "num_times": "20",
        "array_volume": "268.4 MB (=0.3 GB)",
    }
    output = read(BABEL_CSV)
    assert figures(output)["triad"] == (38693.6, "MB/s")
    assert output.inputs == {"num_times": "20", "array_size": "33554432", "precision": "double"}
    assert whole("babelstream/v40_omp_triad_only") == {"triad": (68.196, "GB/s")}
    assert whole("babelstream/v40_omp_triad_only_csv") == {"triad": (90.3881, "GB/s")}
    assert whole("babelstream/v40_omp_nstream_only") == {"nstream": (178977.016, "MB/s")}
    assert whole("babelstream/main_omp_tebibytes")["copy"] == (0.112, "TiB/s")
    assert whole("babelstream/main_omp_gibibytes")["copy"] == (110.989, "GiB/s")
    assert whole("babelstream/v50_omp_mibibytes")["copy"] == (114090.945, "MiB/s")
    output = read(BABEL_TABLE)
    assert output.inputs["array_size"] == "33554432"
    assert output.inputs["order"] == "Classic"


def test_babelstream_device() -> None:
    text = changed(
        text_of(BABEL_TABLE), r"^(Function )", r"Using CUDA device: NVIDIA H200\nDriver: 1\n\1"
    )
    assert read(BABEL_TABLE, text).inputs["device"] == "NVIDIA H200"
    text = changed(
        text_of(BABEL_TABLE), r"^(Function )", r"Using HIP device AMD Instinct MI250X\n\1"
    )
    assert read(BABEL_TABLE, text).inputs["device"] == "AMD Instinct MI250X"
    devices = {"v40": "Stand-in GPU", "v50": "Stand-in GPU", "main": "NVIDIA H100 80GB HBM3"}
    for version, device in devices.items():
        inputs = read(f"babelstream/{version}_cuda").inputs
        assert (inputs["implementation"], inputs["device"]) == ("CUDA", device)
    # Of 3,352 GB/s that the program prints as peak.
    assert whole("babelstream/main_cuda")["triad"] == (2914366.043, "MB/s")


@pytest.mark.parametrize(
    "name",
    [
        "Intel(R) FPGA Emulation Device", "Intel(R) Xeon(R) CPU E5-2697 v2 @ 2.70GHz",
        "AMD EPYC 7543P 32-Core Processor", "INTEL(R) XEON(R) PLATINUM 8592+",
        "12th Gen Intel(R) Core(TM) i7-12700", "cpu-haswell-AMD EPYC 7543P",
        "AdaptiveCpp OpenMP host device", "SYCL host device",
    ],
)  # fmt: skip
def test_babelstream_sycl_devices_that_are_no_gpu(name: str) -> None:
    assert babelstream.NO_GPU.search(name)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-40GB", "NVIDIA GH200 480GB", "Tesla V100-SXM2-16GB", "Fiji",
        "AMD Instinct MI250X", "gfx90a:sramecc+:xnack-", "Intel(R) Data Center GPU Max 1550",
    ],
)  # fmt: skip
def test_babelstream_sycl_devices_that_may_be_gpus(name: str) -> None:
    assert not babelstream.NO_GPU.search(name)


def test_babelstream_a_rate_that_fills_its_column() -> None:
    """From 10 TB/s on, no blank stands between rate and time."""
    name = "babelstream/v50_cuda_broken"
    assert re.search(r"^Triad +\d{8}\.\d{4}\.\d{5} ", text_of(name), re.M)
    assert len(whole(name)) == 5
    # Half the bytes of a triad cannot be moved at that rate in a time of five digits.
    text = changed(text_of("babelstream/v50_cuda"), r"^(Triad +)\S+ +", r"\g<1>24409140.640")
    with pytest.raises(ParseError, match=r"24409140\.64"):
        read("babelstream/v50_cuda", text)


BABEL_FAILURES = [name for name in PROGRAM.good if babelstream.FAILED.search(stderr_of(name))]


@pytest.mark.parametrize("name", BABEL_FAILURES)
def test_babelstream_failed_validation_stands_on_standard_error(name: str) -> None:
    """The program prints its table and exits with 0."""
    read(name)
    for both in (text_of(name) + stderr_of(name), stderr_of(name) + text_of(name)):
        assert refusal(name, both) == PROGRAM_ERROR


def test_babelstream_failed_validation() -> None:
    assert "babelstream/omp_float" in BABEL_FAILURES
    line = "FAILED validation of a[0]: 1 (is) != 2 (should), diff=1 > 0.1 (largest=2, max_rel=1)\n"
    assert refusal(BABEL_TABLE, text_of(BABEL_TABLE) + line) == PROGRAM_ERROR


@pytest.mark.parametrize(
    "name", [name for name in PROGRAM.good if "main" not in name and "csv" in name]
)
def test_babelstream_truncated_csv(name: str) -> None:
    truncate(name, r"^(?:Dot|Nstream|Triad),.*\n(?!.)")
