"""The parser of BabelStream: real captures, read exactly; damage, refused."""

from __future__ import annotations

import re

import damage
import pytest
from damage import changed, figures, read, text_of
from plumbline.parse import ParseError
from plumbline.parse.babelstream import FAILED

#: End of a capture's name -> what its refusal says.
REFUSED = {
    "help|list|print_names": "banner of BabelStream: found 0 times",
    "bad_option|bad_size|one_time|only_wrong": "banner of BabelStream: found 0 times",
    # Main stops at a failed validation, before the table.
    "main_broken": "table's head: found 0 times",
    "main_broken_csv": "banner of BabelStream: found 0 times",
    "killed|no_memory": "table's head: found 0 times",
    "cuda_(?:no_driver|no_device|third|illegal)|main_cuda_broken": "table's head: found 0 times",
    "v[45]0_cuda_odd_size": "table's head: found 0 times",
}
GOOD = damage.good_of("babelstream", REFUSED)
WRONG = sorted(set(damage.names_of("babelstream")) - set(GOOD))

TABLE = "babelstream/main_omp"
OLD = "babelstream/omp"
CSV = "babelstream/omp_csv"
TRIAD = "babelstream/v50_omp_triad_only"
SMALL = "babelstream/main_serial"


def beside(name: str) -> str:
    """What a run said on standard error."""
    path = damage.path_of(name).with_suffix(".err")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@pytest.mark.parametrize("name", GOOD)
def test_every_rate_is_read(name: str) -> None:
    """Row by row, read without any of the parser's care."""
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
    found = figures(read(name))
    assert {kernel: value for kernel, (value, _) in found.items()} == expected
    assert len({unit for _, unit in found.values()}) == 1


def test_spot_values() -> None:
    output = read(OLD)
    assert (output.tasks, output.version) == (None, "5.0")
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
    output = read(CSV)
    assert output.version == ""
    assert figures(output)["triad"] == (38693.6, "MB/s")
    assert output.inputs == {"num_times": "20", "array_size": "33554432", "precision": "double"}
    assert figures(read("babelstream/v40_omp_triad_only")) == {"triad": (68.196, "GB/s")}
    assert figures(read("babelstream/v40_omp_triad_only_csv")) == {"triad": (90.3881, "GB/s")}
    assert figures(read("babelstream/v40_omp_nstream_only")) == {"nstream": (178977.016, "MB/s")}
    assert figures(read("babelstream/main_omp_tebibytes"))["copy"] == (0.112, "TiB/s")
    assert figures(read("babelstream/main_omp_gibibytes"))["copy"] == (110.989, "GiB/s")
    assert figures(read("babelstream/v50_omp_mibibytes"))["copy"] == (114090.945, "MiB/s")
    output = read(TABLE)
    assert output.inputs["array_size"] == "33554432"
    assert output.inputs["order"] == "Classic"


def test_device() -> None:
    text = changed(
        text_of(TABLE), r"^(Function )", r"Using CUDA device: NVIDIA H200\nDriver: 1\n\1"
    )
    assert read(TABLE, text).inputs["device"] == "NVIDIA H200"
    text = changed(text_of(TABLE), r"^(Function )", r"Using HIP device AMD Instinct MI250X\n\1")
    assert read(TABLE, text).inputs["device"] == "AMD Instinct MI250X"
    for version in ("v40", "v50", "main"):
        inputs = read(f"babelstream/{version}_cuda").inputs
        assert (inputs["implementation"], inputs["device"]) == ("CUDA", "Stand-in GPU")


def test_a_rate_that_fills_its_column() -> None:
    """From 10 TB/s on, no blank stands between rate and time."""
    name = "babelstream/v50_cuda_broken"
    assert re.search(r"^Triad +\d{8}\.\d{4}\.\d{5} ", text_of(name), re.M)
    assert len(figures(read(name))) == 5
    # Half the bytes of a triad cannot be moved at that rate in a time of five digits.
    text = changed(text_of("babelstream/v50_cuda"), r"^(Triad +)\S+ +", r"\g<1>24409140.640")
    with pytest.raises(ParseError, match=r"triad|Triad: a rate of 24409140\.64 cannot be"):
        read("babelstream/v50_cuda", text)


FAILURES = [name for name in GOOD if FAILED.search(beside(name))]


@pytest.mark.parametrize("name", FAILURES)
def test_failed_validation_stands_on_standard_error(name: str) -> None:
    """The program prints its table and exits with 0."""
    read(name)
    for both in (text_of(name) + beside(name), beside(name) + text_of(name)):
        with pytest.raises(ParseError, match=r"BabelStream says: (Validation failed|FAILED)"):
            read(name, both)


def test_failed_validation() -> None:
    assert "babelstream/omp_float" in FAILURES
    said = "FAILED validation of a[0]: 1 (is) != 2 (should), diff=1 > 0.1 (largest=2, max_rel=1)\n"
    with pytest.raises(ParseError, match="BabelStream says: FAILED validation"):
        read(TABLE, text_of(TABLE) + said)


# -- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in GOOD if "main" not in name and "csv" in name])
def test_truncated_csv(name: str) -> None:
    damage.truncate(name, r"^(?:Dot|Nstream|Triad),.*\n(?!.)")


#: Cells, each between two groups: a text is refused where one is no number.
CELLS = [
    (TABLE, r"^(Add +)\S+(.*)$"),
    (TABLE, r"^(Add +\S+ +)\S+(.*)$"),
    (TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+( *)$"),
    (CSV, r"^(Add,20,33554432,8,)[^,]+(.*)$"),
    (CSV, r"^(Add,20,33554432,8,[^,]+,)[^,]+(.*)$"),
    (CSV, r"^(Add,20,)\d+(.*)$"),
    (TRIAD, r"^(Bandwidth .*:  )\S+()$"),
    (TRIAD, r"^(Runtime .*: )\S+()$"),
]


#: What is changed in a capture, by what, and what the refusal says.
FAULTS = [
    (TABLE, r"^Add .*\n", "", "rows are missing or doubled"),
    (TABLE, r"^(Add .*\n)", r"\1\1", "rows are missing or doubled"),
    (TABLE, r"^(Add .*)$", r"\1 1.00000", "no rate and three times"),
    (TABLE, r"^(Add +\S+ +\S+ +\S+) .*$", r"\1", "no rate and three times"),
    (TABLE, r"^Add ", "Sum ", "no row of the table"),
    (TABLE, r"^(Add .*\n)", r"\1Abort(1)\n", "no row of the table"),
    (TABLE, r"MB/s  ", "MFlops", "unknown unit"),
    (TABLE, r"MB/s  ", "MiB/s ", "cannot be that of"),
    (TABLE, r"MB/s  ", "GB/s  ", "cannot be that of"),
    (TABLE, r"^(Add +)\d", r"\g<1>9", "cannot be that of"),
    (TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+", r"\g<1>9.00000", "minimum, mean, maximum"),
    (TABLE, r"^(Add +\S+ +\S+ +\S+ +)\S+", r"\g<1>0.00000", "minimum, mean, maximum"),
    (TABLE, r"^(Number of elements: )\d+", r"\g<1>1024", "bytes are not"),
    (TABLE, r"^(Precision: )double", r"\1float", "bytes are not"),
    (TABLE, r"^(Precision: )double", r"\1half", "precision: found 0 times"),
    (TABLE, r"^Version.*\n", "", "version: found 0 times"),
    (TABLE, r"^Array size.*$", "Array size: big", "no size of an array"),
    (TABLE, r"^(Implementation.*\n)", r"\1\1", "implementation: found 2 times"),
    (TABLE, r"Classic kernels", "All kernels", "rows are missing or doubled"),
    (CSV, r"^Add,.*\n", "", "rows are missing or doubled"),
    (CSV, r"^(Add,.*\n)", r"\1\1", "rows are missing or doubled"),
    (CSV, r"^Add,20,", "Add,30,", "other inputs"),
    (CSV, r"^(Add,.*)$", r"\1,1", "no row of the CSV"),
    (CSV, r"^(Add,20,33554432,8,)3", r"\g<1>9", "cannot be that of"),
    (CSV, r"^(function.*)max_mbytes", r"\1max_mibytes", "cannot be that of"),
    (CSV, r"^(function.*)max_mbytes", r"\1max_mflops", "unknown unit"),
    (CSV, r"^(Copy,20,33554432,)8", r"\g<1>2", "numbers of 2 bytes"),
    (TRIAD, r"^Runtime.*\n", "", "lines of --triad-only"),
    (TRIAD, r"GB/s", "GFlop/s", "unknown unit"),
    (TRIAD, r"^(Running triad )\d+", r"\g<1>2", "cannot be that of"),
    (TRIAD, r"^Bandwidth.*$", "Bandwidth: 5", "no time and rate"),
]


PROGRAM = damage.Program(
    "babelstream",
    GOOD,
    {name: damage.says_of(name, REFUSED) for name in WRONG},
    r"^(?:Bandwidth|Dot|Nstream|Copy|Triad) .*\n",
    ["osu/osu_bw", "hpcc/n400_2ranks"],
    "banner",
    cells=CELLS,
    faults=FAULTS,
)
