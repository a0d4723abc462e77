"""Convert units of figures of merit."""

from __future__ import annotations

import functools
import re
from typing import Any

import pint


class UnitError(Exception):
    """A unit is unknown, or two units have different dimensions."""


#: All known units. pint's own thousand definitions would read PF as a farad, and take longer to
#: load than all reference tables.
_DEFINITIONS = """
peta- = 1e15 = P-
tera- = 1e12 = T-
giga- = 1e9 = G-
mega- = 1e6 = M-
kilo- = 1e3 = k-
micro- = 1e-6 = u-
nano- = 1e-9 = n-
tebi- = 2**40 = Ti-
gibi- = 2**30 = Gi-
mebi- = 2**20 = Mi-
kibi- = 2**10 = Ki-
second = [time] = s
millisecond = 1e-3 * second = ms
minute = 60 * second = min
hour = 60 * minute = h
day = 24 * hour
byte = [information] = B
bit = byte / 8 = b
watt = [power] = W
flop = [work]
update = [update]
message = [message]
operation = [operation]
one = []
percent = 0.01 * one
"""

#: Spelling in programs and papers -> spelling above. Upstream's ``M`` and ``G`` are decimal; a
#: binary unit always has an ``i``.
SPELLINGS = {
    "": "one",
    "X": "one",
    "x": "one",
    "%": "percent",
    "nsec": "ns",
    "usec": "us",
    "t[usec]": "us",
    "µs": "us",
    "μs": "us",
    "µsec": "us",
    "msec": "ms",
    "sec": "s",
    "seconds": "s",
    "minutes": "min",
    "Mbytes/sec": "MB/s",
    "MBytes/sec": "MB/s",
    "GB/sec": "GB/s",
    "GBytes": "GB/s",
    "GBytes per second": "GB/s",
    "Mbps": "Mb/s",
    "Gbps": "Gb/s",
    "GF": "Gflop/s",
    "GFLOPS": "Gflop/s",
    "Gflops": "Gflop/s",
    "gflops": "Gflop/s",
    "GFlops": "Gflop/s",
    "TF": "Tflop/s",
    "Tflops": "Tflop/s",
    "TFlops": "Tflop/s",
    "TFLOPS": "Tflop/s",
    "PF": "Pflop/s",
    "PFlops": "Pflop/s",
    "PFLOPS": "Pflop/s",
    "PetaFlop": "Pflop/s",
    "petaflops": "Pflop/s",
    "Pflops/MW": "Pflop/s/MW",
    "GB/s/Gflops": "GB/Gflop",
    "GiB/Gflops": "GiB*s/Gflop",
    "GB/GB/s": "s",
    "GUPs": "Gupdate/s",
    "creates/s": "operation/s",
    "Million creates/s": "Moperation/s",
    "operations/s": "operation/s",
    "IOPS": "operation/s",
    "kIOPS": "koperation/s",
    "messages per minute": "message/min",
}


_TIME = {"[time]": 1}


@functools.cache
def _registry() -> pint.UnitRegistry[Any]:
    registry: pint.UnitRegistry[Any] = pint.UnitRegistry(None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


def same(left: str, right: str) -> bool:
    """Return whether two spellings are of the same unit.

    >>> same("MBytes/sec", "MB/s"), same("MiB/s", "MB/s")
    (True, False)
    """
    return SPELLINGS.get(left, left) == SPELLINGS.get(right, right)


@functools.cache
def factor(source: str, target: str) -> float:
    """Return the factor that converts a value in ``source`` to ``target``.

    >>> factor("MiB/s", "MB/s"), factor("usec", "ms")
    (1.048576, 0.001)

    :raises UnitError: if a unit is unknown, or the dimensions differ.
    """
    registry = _registry()
    try:
        if "//" in source + target:
            raise ValueError("'//' is not a division of units")
        units = [registry.parse_units(SPELLINGS.get(u, u)) for u in (source, target)]
        if same(source, target):
            return 1.0
        return float(registry.Quantity(1.0, units[0]).to(units[1]).magnitude)
    except Exception as err:
        raise UnitError(f"cannot convert {source!r} to {target!r}: {err}") from None


def conversion(source: str, target: str) -> float:
    """Return :func:`factor`, and 1 between two spellings of the same unit, also an unknown one.

    :raises UnitError: as :func:`factor`.
    """
    return 1.0 if same(source, target) else factor(source, target)


def convertible(source: str, target: str) -> bool:
    """Return whether :func:`conversion` converts one unit to another."""
    try:
        conversion(source, target)
    except UnitError:
        return False
    return True


def quantity(unit: str) -> str:
    """Return what a unit is of: ``bandwidth``, ``rate`` (anything else per time), ``latency``, a
    time in units below a second, or ``time``, any other and time per anything. Empty if it is none
    of them.

    >>> [quantity(unit) for unit in ("GB/s", "images/sec", "GB/s per node", "us", "s/step", "GB")]
    ['bandwidth', 'rate', 'rate', 'latency', 'time', '']

    Of two times, the one that passes while the program runs is not below a second.

    >>> quantity("ns/day"), quantity("days/ns")
    ('rate', 'time')
    """
    unit = SPELLINGS.get(unit, unit)
    what, *per = re.split("/| per ", unit)
    of, times = _dimension(what), [each for each in per if _dimension(each) == _TIME]
    if of == _TIME and per:
        return "rate" if any(factor(each, "s") >= 1 for each in times) else "time"
    if times:
        return "bandwidth" if per == times and of == {"[information]": 1} else "rate"
    found = _dimension(unit)
    if found == _TIME:
        return "time" if factor(unit, "s") >= 1 else "latency"
    return "rate" if found.get("[time]", 0) == -1 else ""


def better(unit: str) -> str:
    """Return which values of a unit are better: ``lower`` of a time, ``higher`` of what is done per
    time, ``neither`` of anything else.

    >>> better("us"), better("GB/s"), better("GB"), better("furlong")
    ('lower', 'higher', 'neither', 'neither')
    """
    found = quantity(unit)
    return "neither" if not found else "lower" if found in ("time", "latency") else "higher"


def _dimension(unit: str) -> dict[str, Any]:
    """Return the dimension of a unit; empty if it has none, or is unknown."""
    try:
        return dict(_registry().parse_units(SPELLINGS.get(unit, unit)).dimensionality)
    except Exception:
        return {}
