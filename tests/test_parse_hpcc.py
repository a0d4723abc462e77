"""The table of HPC Challenge, and what its reports say."""

from __future__ import annotations

import re

import pytest
from captured import (
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

HPCC = "hpcc/n400_2ranks"

PROGRAM = Program(
    "hpcc",
    failed="killed|one_process|residual_failed",
    closing=r"^End of HPC Challenge tests\.",
    others=["osu/osu_bw", "imb/pingpong"],
    reported="residual_failed",
    strict=True,
    cells=[
        ("hpcc/n400_2ranks", r"^(StarSTREAM_Triad=)\S+()$"),
        ("hpcc/n400_2ranks", r"^(AvgPingPongLatency_usec=)\S+()$"),
        ("hpcc/n400_2ranks", r"^(MinPingPongLatency_usec=)\S+()$"),
    ],
    faults=[
        (HPCC, r"^Success=1$", "Success=0", PROGRAM_ERROR),
        (HPCC, r"^Success=1$", "Success=11", PROGRAM_ERROR),
        (HPCC, r"^Success=1\n", ""),
        (HPCC, r"^(HPL_Tflops=.*\n)", r"\1\1"),
        (HPCC, r"^RandomlyOrderedRingLatency_usec=.*\n", ""),
        (HPCC, r"^AvgPingPongLatency_usec=", "AvgPingPongLatency_msec="),
        (HPCC, r"^StarDGEMM_Gflops=", "StarDGEMM_Tflops="),
        (HPCC, r"^HPL_Tflops=.*$", "HPL_Tflops"),
        (HPCC, r"^(HPL_Tflops=)", r"mpirun: a node died\n\1"),
        (HPCC, r"^CommWorldProcs=2$", "CommWorldProcs=two"),
        (HPCC, r"^CommWorldProcs=2\n", ""),
        (HPCC, r"(\.\.\.\.\.\. )PASSED", r"\1FAILED", PROGRAM_ERROR),
        (HPCC, r"(WALL .*)PASSED( .*\n)(?=.*\n\nFinished)", r"\1FAILED\2", PROGRAM_ERROR),
        (HPCC, r"^(Begin of HPL section\.\n)", r"\1HPL ERROR from process # 0\n", PROGRAM_ERROR),
        (HPCC, r"(Finished +)1( tests with the)", r"\g<1>2\2"),
        (HPCC, r"^Finished +1 tests with the.*\n", ""),
        (HPCC, r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\g<1>0.0101"),
        (HPCC, r"^(MPIRandomAccess_LCG_ErrorsFraction=)0$", r"\g<1>0.5"),
        (HPCC, r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\1-nan"),
        (HPCC, r"^(MinPingPongLatency_usec=).*$", r"\g<1>1000"),
        (HPCC, r"^(MaxPingPongBandwidth_GBytes=).*$", r"\g<1>0.001"),
        (HPCC, r"^End of (Summary section\.)$", r"Begin of \1"),
        (HPCC, r"((?:.*\n)*)(End of HPC Challenge tests\.\n)", r"\2\1"),
        (HPCC, r"^End of HPC Challenge tests\.\n", ""),
        (HPCC, r"Rate \(GB/s\)", "Rate (MB/s)"),
        (HPCC, r"^MPIRandomAccess_ErrorsFraction=.*\n", ""),
        # malloc() failed in a task's StarRandomAccess: the mean is halved, with Success=1.
        (HPCC, r"^(Node\(s\) with error )0(\nMinimum GUP/s 0\.76)", r"\g<1>1\2", PROGRAM_ERROR),
    ],
)

#: A line of the report above the summary of hpcc -> the figure, and from the line's unit to its.
HPCC_LINES = {
    "hpl Tflop/s": (r"^W[RC]\S+ .* (\S+)$", 1e-3),
    "star_dgemm Gflop/s": (r"StarDGEMM section(?:.*\n)+?Average Gflop/s (\S+)", 1),
    "single_dgemm Gflop/s": (r"Single DGEMM Gflop/s (\S+)", 1),
    "mpi_random_access Gupdate/s": (
        r"MPIRandomAccess section(?:.*\n)+?(\S+) Billion.* Updates    per",
        1,
    ),
    "star_random_access Gupdate/s": (r"StarRandomAccess section(?:.*\n)+?Average GUP/s (\S+)", 1),
    "single_random_access Gupdate/s": (
        r"SingleRandomAccess section(?:.*\n)+?Single GUP/s (\S+)",
        1,
    ),
    "star_stream_copy GB/s": (r"Average Copy GB/s (\S+)", 1),
    "star_stream_scale GB/s": (r"Average Scale GB/s (\S+)", 1),
    "star_stream_add GB/s": (r"Average Add GB/s (\S+)", 1),
    "star_stream_triad GB/s": (r"Average Triad GB/s (\S+)", 1),
    "single_stream_copy GB/s": (r"Single STREAM Copy GB/s (\S+)", 1),
    "single_stream_scale GB/s": (r"Single STREAM Scale GB/s (\S+)", 1),
    "single_stream_add GB/s": (r"Single STREAM Add GB/s (\S+)", 1),
    "single_stream_triad GB/s": (r"Single STREAM Triad GB/s (\S+)", 1),
    "star_fft Gflop/s": (r"StarFFT section(?:.*\n)+?Average Gflop/s (\S+)", 1),
    "single_fft Gflop/s": (r"SingleFFT section(?:.*\n)+?Single FFT Gflop/s (\S+)", 1),
    "mpi_fft Gflop/s": (r"MPIFFT section(?:.*\n)+?Gflop/s: +(\S+)", 1),
    "pingpong_latency_min us": (r"Ping Pong:\nLatency .*: +(\S+) / +\S+ / +\S+ msecs", 1e3),
    "pingpong_latency us": (r"Ping Pong:\nLatency .*: +\S+ / +(\S+) / +\S+ msecs", 1e3),
    "pingpong_latency_max us": (r"Max Ping Pong Latency: +(\S+) msecs", 1e3),
    "pingpong_bandwidth_min GB/s": (r"Min Ping Pong Bandwidth: +(\S+) MB/s", 1e-3),
    "pingpong_bandwidth GB/s": (r"Ping Pong:\n.*\nBandwidth .*: +\S+ / +(\S+) / +\S+ MB", 1e-3),
    "pingpong_bandwidth_max GB/s": (r"Ping Pong:\n.*\nBandwidth .*: .* / +(\S+) MB", 1e-3),
    "natural_ring_latency us": (r"On naturally ordered ring: latency= +(\S+) msec", 1e3),
    "random_ring_latency us": (r"^Randomly Ordered Ring Latency: +(\S+) msecs", 1e3),
    "natural_ring_bandwidth GB/s": (r"Naturally Ordered Ring Bandwidth: +(\S+) MB/s", 1e-3),
    "random_ring_bandwidth GB/s": (r"Randomly  Ordered Ring Bandwidth: +(\S+) MB/s", 1e-3),
}


@pytest.mark.parametrize("name", ["hpcc/hpcc_N400_2ranks", "hpcc/n400_2ranks"])
def test_hpcc_agrees_with_the_report_above_the_summary(name: str) -> None:
    text, found = text_of(name), whole(name)
    for figure, (pattern, scale) in HPCC_LINES.items():
        metric, unit = figure.split()
        (printed,) = re.search(pattern, text, re.M).groups()
        # Half of the last digit that is printed there, and the six digits of the summary.
        decimals = len(printed.partition("e")[0].partition(".")[2])
        half = 0.5 * 10**-decimals * (10 ** int(printed.partition("e")[2] or 0))
        assert found[metric] == (
            pytest.approx(float(printed) * scale, rel=1e-5, abs=half * scale),
            unit,
        )
    assert found["ptrans"] == (float(text.split("\nPTRANS_GBs=")[1].split()[0]), "GB/s")
    assert set(found) == {figure.split()[0] for figure in HPCC_LINES} | {"ptrans"}


def test_random_access_may_err_once_in_a_hundred() -> None:
    text = changed(text_of(HPCC), r"^(MPIRandomAccess_ErrorsFraction=)0$", r"\g<1>0.01")
    assert figures(read("hpcc", text)) == whole(HPCC)


@pytest.mark.parametrize("where", ["", "from right: "])
def test_hpcc_goes_on_after_wrong_bytes(where: str) -> None:
    """With `Success=1`; the first rank says so in the report, the others on standard error."""
    line = f"[1]: ERROR: {where}expected 3 and 4 as first and last byte, but got 3 and 0 instead\n"
    text = changed(text_of(HPCC), r"^(Begin of Summary section\.)$", rf"{line}\1")
    assert refusal("hpcc", text) == "output.program-error"
    assert refusal_of_errors("hpcc", line) == "output.program-error"
