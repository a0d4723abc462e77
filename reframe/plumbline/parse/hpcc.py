"""HPC Challenge 1.5: the ``key=value`` summary at the end of ``hpccoutf.txt``.

The metrics are upstream's keys in lower case without their unit. The unit is the one in the key or,
for STREAM, in the text above the summary (GB/s, 10⁹ B/s).

STREAM's best times are not reset between its two sections (``mintime`` of ``STREAM/stream.c``):
where one task alone is no faster than all at once, SingleSTREAM prints StarSTREAM's rate.
"""

from __future__ import annotations

import re

from plumbline.parse import Fom, Output, ParseError, parse_count, parse_number, single

#: Key of the summary -> metric and unit.
KEYS = {
    "HPL_Tflops": ("hpl", "Tflop/s"),
    "StarDGEMM_Gflops": ("star_dgemm", "Gflop/s"),
    "SingleDGEMM_Gflops": ("single_dgemm", "Gflop/s"),
    "PTRANS_GBs": ("ptrans", "GB/s"),
    "MPIRandomAccess_GUPs": ("mpi_random_access", "Gupdate/s"),
    "StarRandomAccess_GUPs": ("star_random_access", "Gupdate/s"),
    "SingleRandomAccess_GUPs": ("single_random_access", "Gupdate/s"),
    "StarSTREAM_Copy": ("star_stream_copy", "GB/s"),
    "StarSTREAM_Scale": ("star_stream_scale", "GB/s"),
    "StarSTREAM_Add": ("star_stream_add", "GB/s"),
    "StarSTREAM_Triad": ("star_stream_triad", "GB/s"),
    "SingleSTREAM_Copy": ("single_stream_copy", "GB/s"),
    "SingleSTREAM_Scale": ("single_stream_scale", "GB/s"),
    "SingleSTREAM_Add": ("single_stream_add", "GB/s"),
    "SingleSTREAM_Triad": ("single_stream_triad", "GB/s"),
    "StarFFT_Gflops": ("star_fft", "Gflop/s"),
    "SingleFFT_Gflops": ("single_fft", "Gflop/s"),
    "MPIFFT_Gflops": ("mpi_fft", "Gflop/s"),
    "MinPingPongLatency_usec": ("pingpong_latency_min", "us"),
    "AvgPingPongLatency_usec": ("pingpong_latency", "us"),
    "MaxPingPongLatency_usec": ("pingpong_latency_max", "us"),
    "MinPingPongBandwidth_GBytes": ("pingpong_bandwidth_min", "GB/s"),
    "AvgPingPongBandwidth_GBytes": ("pingpong_bandwidth", "GB/s"),
    "MaxPingPongBandwidth_GBytes": ("pingpong_bandwidth_max", "GB/s"),
    "NaturallyOrderedRingLatency_usec": ("natural_ring_latency", "us"),
    "RandomlyOrderedRingLatency_usec": ("random_ring_latency", "us"),
    "NaturallyOrderedRingBandwidth_GBytes": ("natural_ring_bandwidth", "GB/s"),
    "RandomlyOrderedRingBandwidth_GBytes": ("random_ring_bandwidth", "GB/s"),
}

_BANNER = "This is the DARPA/DOE HPC Challenge Benchmark version"
_BEGIN, _CLOSE, _END = (
    "Begin of Summary section.",
    "End of Summary section.",
    "End of HPC Challenge tests.",
)

#: Shares of wrong updates of RandomAccess; the rules allow one in a hundred.
_ERRORS = ("MPIRandomAccess_ErrorsFraction", "MPIRandomAccess_LCG_ErrorsFraction")
_NEEDED = (*KEYS, *_ERRORS, "Success", "CommWorldProcs", "HPL_N")

#: Messages after which hpcc continues, and reports success: of the latency and bandwidth part about
#: wrong bytes (``bench_lat_bw_1.5.2.c``), which ranks but the first print on standard error, and
#: that MPIRandomAccess is not verified (``RandomAccess/verification.c``), also there.
FAILED = re.compile(
    r"^\[\d+\]: ERROR: .*expected \d+ and \d+ as first and last byte.*$"
    r"|^Failed to allocate memory for (?:local|global) buckets\.",
    re.M,
)


def parse(text: str) -> Output:
    """Parse the output of one run of ``hpcc``.

    :raises ParseError: if it is truncated, garbled, of several runs, or one of its own
        verifications failed.
    """
    single(re.findall(f"^{_BANNER}", text, re.M), "hpcc's banner")
    lines = [line.rstrip() for line in text.splitlines()]
    for mark in (_BEGIN, _CLOSE, _END):
        single([line for line in lines if line == mark], f"the line {mark!r}")
    first, last, end = (lines.index(mark) for mark in (_BEGIN, _CLOSE, _END))
    if not first < last < end:
        raise ParseError("the lines of the summary are out of order")
    values: dict[str, str] = {}
    for line in lines[first + 1 : last]:
        key, equals, value = line.partition("=")
        if not equals or not re.fullmatch(r"\w+", key, re.ASCII):
            raise ParseError(f"not a key=value line in the summary: {line!r}")
        if key in values:
            raise ParseError(f"{key} is repeated in the summary")
        values[key] = value
    missing = [key for key in _NEEDED if key not in values]
    if missing:
        raise ParseError(f"the summary lacks {', '.join(missing)}")
    _check_verification(text, values)
    for kind in ("Latency_usec", "Bandwidth_GBytes"):
        low, mean, high = (
            parse_number(values[f"{which}PingPong{kind}"], f"{which}PingPong{kind}")
            for which in ("Min", "Avg", "Max")
        )
        # The summary prints six digits: a mean of equal numbers may differ in the last one.
        if not low * (1 - 1e-5) <= mean <= high * (1 + 1e-5):
            raise ParseError(f"PingPong{kind}: minimum, mean, maximum are {low}, {mean}, {high}")
    foms = tuple(
        Fom(name, parse_number(values[key], key), unit) for key, (name, unit) in KEYS.items()
    )
    version = ".".join(values.get(f"Version{part}", "?") for part in ("Major", "Minor", "Micro"))
    tasks = parse_count(values["CommWorldProcs"], "CommWorldProcs")
    return Output(foms, tasks, version, {"HPL_N": values["HPL_N"]})


def _check_verification(text: str, values: dict[str, str]) -> None:
    """Check the verifications that hpcc itself makes of its results."""
    if values["Success"] != "1":
        raise ParseError(f"hpcc reports Success={values['Success']}", code="output.program-error")
    # A task without memory for RandomAccess or STREAM counts as zero in the mean, with Success=1.
    wrong = r"^.*(?:\bFAILED\b|HPL ERROR|HPCC ERROR).*$|^Node\(s\) with error (?!0$).*$"
    if line := re.search(wrong, text, re.M) or FAILED.search(text):
        raise ParseError(f"hpcc reports: {line[0].strip()}", code="output.program-error")
    tests = re.findall(r"Finished\s+(\d+) tests with the following results:", text)
    if "1" not in tests:
        raise ParseError("HPL's own check of its residual is missing")
    for key in _ERRORS:
        if parse_number(values[key], key) > 0.01:
            raise ParseError(f"{key} is {values[key]}: HPCC allows 1 % of wrong updates")
    rates = set(re.findall(r"^Function +Rate \(([^)\n]*)\)", text, re.M))
    if rates != {"GB/s"}:
        raise ParseError(f"STREAM's rates are in {', '.join(sorted(rates)) or 'no unit'}, not GB/s")
