"""Units of figures of merit: converted by dimension, never guessed."""

from __future__ import annotations

import functools
from typing import Any

import pint


class UnitError(Exception):
    """A unit is unknown, or two units do not measure the same thing."""


#: The units there are. pint's own thousand definitions would read PF as a farad, and take longer
#: to load than all reference tables.
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

#: How programs and papers spell a unit -> how it is spelled above. Upstream's ``M`` and ``G`` are
#: decimal; a binary unit is always spelled with an ``i``.
SPELLINGS = {
    "": "one",
    "X": "one",
    "x": "one",
    "%": "percent",
    "usec": "us",
    "µs": "us",
    "μs": "us",
    "µsec": "us",
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
def _registry() -> pint.UnitRegistry[Any]:
    registry: pint.UnitRegistry[Any] = pint.UnitRegistry(None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


def same(left: str, right: str) -> bool:
    """Whether two spellings name the same unit, so that nothing need be converted.

    >>> same("MBytes/sec", "MB/s"), same("MiB/s", "MB/s")
    (True, False)
    """
    return SPELLINGS.get(left, left) == SPELLINGS.get(right, right)


@functools.cache
def factor(source: str, target: str) -> float:
    """What a value in ``source`` is multiplied with to be one in ``target``.

    >>> factor("MiB/s", "MB/s"), factor("usec", "ms")
    (1.048576, 0.001)

    :raises UnitError: if a unit is unknown or the dimensions differ.
    """
    registry = _registry()
    try:
        if "//" in source + target:
            raise ValueError("'//' is no division of units")
        units = [registry.parse_units(SPELLINGS.get(u, u)) for u in (source, target)]
        if same(source, target):
            return 1.0
        return float(registry.Quantity(1.0, units[0]).to(units[1]).magnitude)
    except Exception as err:
        raise UnitError(f"cannot convert {source!r} to {target!r}: {err}") from None
