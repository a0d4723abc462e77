"""Units of figures of merit: converted by dimension, never guessed."""

from __future__ import annotations

import functools


class UnitError(Exception):
    """A unit is unknown, or two units do not measure the same thing."""


#: How programs and papers spell a unit -> how pint does. Upstream's ``M`` and ``G`` are
#: decimal; a binary unit is always spelled with an ``i``.
SPELLINGS = {
    "usec": "us",
    "µs": "us",
    "Mbytes/sec": "MB/s",
    "MBytes/sec": "MB/s",
    "GBytes": "GB/s",
    "Gflops": "Gflop/s",
    "Tflops": "Tflop/s",
    "GUPs": "Gupdate/s",
}


@functools.cache
def _registry():
    # Reading pint's definitions takes a third of a second: only where a conversion is asked.
    import pint

    registry = pint.UnitRegistry()
    for unit in ("flop", "update", "message", "operation"):
        registry.define(f"{unit} = [{unit}]")
    return registry


def same(left: str, right: str) -> bool:
    """Whether two spellings name the same unit, so that nothing need be converted."""
    return SPELLINGS.get(left, left) == SPELLINGS.get(right, right)


@functools.cache
def factor(source: str, target: str) -> float:
    """What a value in ``source`` is multiplied with to be one in ``target``.

    :raises UnitError: if a unit is unknown or the dimensions differ.
    """
    if same(source, target):
        return 1.0
    registry = _registry()
    try:
        units = [registry.parse_units(SPELLINGS.get(u, u)) for u in (source, target)]
        return float(registry.Quantity(1.0, units[0]).to(units[1]).magnitude)
    except Exception as err:
        raise UnitError(f"cannot convert {source!r} to {target!r}: {err}") from None
