"""Units: converted by dimension, refused where two do not measure the same thing."""

from __future__ import annotations

import pytest
from plumbline.core.units import UnitError, better, factor, quantity, same

CONVERSIONS = [
    ("MB/s", "MB/s", 1),
    ("GB/s", "MB/s", 1000),
    ("MB/s", "GB/s", 1e-3),
    ("TB/s", "GB/s", 1000),
    ("B/s", "MB/s", 1e-6),
    ("kB/s", "MB/s", 1e-3),
    ("KiB/s", "B/s", 1024),
    ("MiB/s", "MB/s", 1.048576),
    ("GiB/s", "GB/s", 1.073741824),
    ("GiB/s", "MiB/s", 1024),
    ("Gbit/s", "GB/s", 0.125),
    ("Gb/s", "GB/s", 0.125),
    ("Mb/s", "MB/s", 0.125),
    ("us", "s", 1e-6),
    ("ms", "us", 1000),
    ("ns", "us", 1e-3),
    ("s", "us", 1e6),
    ("Tflop/s", "Gflop/s", 1000),
    ("Gflop/s", "Tflop/s", 1e-3),
    ("Pflop/s", "Tflop/s", 1000),
    ("Gupdate/s", "Mupdate/s", 1000),
    ("message/s", "Mmessage/s", 1e-6),
    ("operation/s", "koperation/s", 1e-3),
    # As programs and papers spell them.
    ("usec", "us", 1),
    ("\N{MICRO SIGN}s", "us", 1),
    ("\N{GREEK SMALL LETTER MU}s", "us", 1),
    ("Mbytes/sec", "MB/s", 1),
    ("MBytes/sec", "GB/s", 1e-3),
    ("GBytes", "MB/s", 1000),
    ("Gflops", "Tflop/s", 1e-3),
    ("Tflops", "Gflop/s", 1000),
    ("GUPs", "Gupdate/s", 1),
    ("GB/sec", "GB/s", 1),
    ("PetaFlop", "Tflop/s", 1000),
    ("PF", "Tflop/s", 1000),
    ("%", "one", 0.01),
    ("X", "percent", 100),
    ("messages per minute", "message/s", 1 / 60),
]


@pytest.mark.parametrize(("source", "target", "expected"), CONVERSIONS)
def test_conversion(source: str, target: str, expected: float) -> None:
    assert factor(source, target) == pytest.approx(expected, rel=1e-12)
    assert factor(target, source) == pytest.approx(1 / expected, rel=1e-12)


#: Units of different things, and no units.
REFUSED = [
    ("MB/s", "us"),
    ("MB", "MB/s"),
    ("s", "MB/s"),
    ("Gflop/s", "GB/s"),
    ("Gflop/s", "Gupdate/s"),
    ("flop", "flop/s"),
    ("message/s", "operation/s"),
    ("message/s", "MB/s"),
    ("1/s", "message/s"),
    ("us", "us/MB"),
    ("m", "us"),
    # A byte is no plain number.
    ("MB/s", "1/s"),
    ("ns/B", "us"),
    ("B", "one"),
    ("B/s", "Hz"),
    # A large K is no kilo, and a megaparrot is no unit.
    ("KB/s", "MB/s"),
    ("2*MB/s", "MB/s"),
    ("parrots/s", "MB/s"),
    ("MB/s", "parrots/s"),
    ("parrots/s", "parrots/s"),
    ("", "MB/s"),
    ("%", "MB/s"),
    ("(", "us"),
    ("__import__('os')", "us"),
]


@pytest.mark.parametrize(("source", "target"), REFUSED)
def test_refused(source: str, target: str) -> None:
    with pytest.raises(UnitError):
        factor(source, target)


def test_same() -> None:
    assert same("usec", "us")
    assert same("us", "us")
    assert same("Mbytes/sec", "MBytes/sec")
    assert same("GBytes", "GB/s")
    assert not same("MB/s", "MiB/s")
    assert not same("GB/s", "MB/s")
    assert not same("MB/s", "mb/s")


#: Units of other facilities' checks -> what they are of, and which values are better.
OTHERS = [
    ("MB/second", "bandwidth", "higher"),
    ("Mbps", "bandwidth", "higher"),
    ("ns/day", "rate", "higher"),
    # NAMD prints the time that a simulated nanosecond takes.
    ("days/ns", "time", "lower"),
    ("s/step", "time", "lower"),
    ("ms/step", "time", "lower"),
    ("msec", "latency", "lower"),
    ("GFLOPS", "rate", "higher"),
    ("TFLOP/s/GPU", "rate", "higher"),
    ("tokens/sec/gpu", "rate", "higher"),
    # Not of what one link or memory moves.
    ("GB/s/node", "rate", "higher"),
    ("Mflop/s per node", "rate", "higher"),
    # The header of a column of IMB.
    ("t[usec]", "latency", "lower"),
    ("gflops", "rate", "higher"),
    ("kIOPS", "rate", "higher"),
    ("clock cycles", "", "neither"),
    ("kJ/mol", "", "neither"),
    ("", "", "neither"),
]


@pytest.mark.parametrize(("unit", "what", "which"), OTHERS)
def test_what_a_unit_is_of(unit: str, what: str, which: str) -> None:
    assert (quantity(unit), better(unit)) == (what, which)
