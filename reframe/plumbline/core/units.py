"""Convert units of figures of merit."""

from __future__ import annotations

import functools
import re
from collections import Counter
from fractions import Fraction


class UnitError(Exception):
    """A unit is unknown, or two units have different dimensions."""


#: Numbers before units. There is no milli, as MB and mB would be too similar.
_PREFIXES = {
    "": Fraction(1),
    "P": Fraction(10**15),
    "T": Fraction(10**12),
    "G": Fraction(10**9),
    "M": Fraction(10**6),
    "k": Fraction(10**3),
    "u": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
    "Ti": Fraction(2**40),
    "Gi": Fraction(2**30),
    "Mi": Fraction(2**20),
    "Ki": Fraction(2**10),
}

#: All known units: the number of base units, and of what. A library of physical units reads PF as a
#: farad, and takes as long to load as ReFrame.
_UNITS: dict[str, tuple[Fraction | int, str]] = {
    **dict.fromkeys(["s", "second"], (1, "time")),
    "ms": (Fraction(1, 1000), "time"),
    **dict.fromkeys(["min", "minute"], (60, "time")),
    **dict.fromkeys(["h", "hour"], (3600, "time")),
    "day": (86400, "time"),
    **dict.fromkeys(["B", "byte"], (1, "information")),
    **dict.fromkeys(["b", "bit"], (Fraction(1, 8), "information")),
    **dict.fromkeys(["W", "watt"], (1, "power")),
    "flop": (1, "flop"),
    "update": (1, "update"),
    "message": (1, "message"),
    "operation": (1, "operation"),
    **dict.fromkeys(["one", "1"], (1, "")),
    "percent": (Fraction(1, 100), ""),
}

#: Spelling in programs and papers -> spelling above. Upstream's ``M`` and ``G`` are decimal; a
#: binary unit always has an ``i``.
SPELLINGS = {
    "": "one",
    "X": "one",
    "x": "one",
    "%": "percent",
    "usec": "us",
    "µs": "us",
    "μs": "us",
    "µsec": "us",
    "sec": "s",
    "seconds": "s",
    "minutes": "min",
    "Mbytes/sec": "MB/s",
    "MBytes/sec": "MB/s",
    "GB/sec": "GB/s",
    "GBytes": "GB/s",
    "GBytes per second": "GB/s",
    "Gbps": "Gb/s",
    "GF": "Gflop/s",
    "Gflops": "Gflop/s",
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
    "messages per minute": "message/min",
}


@functools.cache
def _parsed(unit: str) -> tuple[Fraction, Counter[str]]:
    """Return the number of base units in a unit, and its dimension: base unit -> power.

    :raises UnitError: if a part of it is unknown.
    """
    size, dimension = Fraction(1), Counter[str]()
    first, *others = re.split(r"([*/])", SPELLINGS.get(unit, unit))
    for operator, word in [("*", first), *zip(others[::2], others[1::2], strict=True)]:
        number, of = _known(word.strip())
        power = 1 if operator == "*" else -1
        size *= number**power
        dimension[of] += power
    return size, Counter({of: power for of, power in dimension.items() if of and power})


def _known(word: str) -> tuple[Fraction, str]:
    """Return a prefixed unit as :data:`_UNITS` has it."""
    for name in (word, word.removesuffix("s")):
        for prefix, number in _PREFIXES.items():
            size, of = _UNITS.get(name.removeprefix(prefix), (0, ""))
            if size and name.startswith(prefix):
                return number * size, of
    raise UnitError(f"{word!r} is not a known unit")


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
    try:
        (size, of), (unit, wanted) = _parsed(source), _parsed(target)
        if of != wanted:
            raise UnitError("they do not measure the same thing")
    except UnitError as err:
        raise UnitError(f"cannot convert {source!r} to {target!r}: {err}") from None
    return float(size / unit)


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
    """Return what a unit is of: ``bandwidth``, ``rate`` (anything else per time), ``time``, or
    ``latency``, a time in units below a second. Empty if it is none of them.

    >>> quantity("GB/s"), quantity("images/sec"), quantity("ns/day"), quantity("us"), quantity("GB")
    ('bandwidth', 'rate', 'rate', 'latency', '')
    """
    unit = SPELLINGS.get(unit, unit)
    what, slash, per = unit.rpartition("/")
    if slash and _dimension(per) == {"time": 1}:
        return "bandwidth" if _dimension(what) == {"information": 1} else "rate"
    found = _dimension(unit)
    if found == {"time": 1}:
        return "time" if factor(unit, "s") >= 1 else "latency"
    return "rate" if found["time"] == -1 else ""


def better(unit: str) -> str:
    """Return which values of a unit are better: ``lower`` of a time, ``higher`` of what is done per
    time, ``neither`` of anything else.

    >>> better("us"), better("GB/s"), better("GB"), better("furlong")
    ('lower', 'higher', 'neither', 'neither')
    """
    found = quantity(unit)
    return "neither" if not found else "lower" if found in ("time", "latency") else "higher"


def _dimension(unit: str) -> Counter[str]:
    """Return the dimension of a unit; empty if it has none, or is unknown."""
    try:
        return _parsed(unit)[1]
    except UnitError:
        return Counter()
