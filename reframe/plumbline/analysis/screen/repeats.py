"""Single and repeated measurements of the units on each night, as one value with its variance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from plumbline.analysis.screen.detection import (
    LEAST_NOISE,
    MAD_EFFICIENCY,
    common_mode,
    noise_of,
    steps_of,
)
from plumbline.analysis.stats import MAD_TO_STD


class Cells:
    """The measurements of a group's units by night, in a fraction of the memory of a dictionary.

    :ivar nights: of each cell, in the order of measuring. :ivar units: all names, in their order.
    :ivar values: of all cells.
    """

    def __init__(
        self,
        measured: Mapping[tuple[str, tuple[str, ...]], list[float]],
        units: list[tuple[str, ...]],
    ):
        number = {unit: place for place, unit in enumerate(units)}
        self.nights = [night for night, _ in measured]
        self.units = units
        self.values = np.array([value for rows in measured.values() for value in rows])
        self._unit = np.array([number[unit] for _, unit in measured], np.int32)
        self._count = np.array([len(rows) for rows in measured.values()], np.int32)

    @property
    def repeated(self) -> bool:
        """Whether some were measured more often than others."""
        return bool(np.ptp(self._count))

    def logarithms(self) -> Iterator[tuple[str, int, list[float]]]:
        """Yield the night, the number of the unit and the logarithms of each cell."""
        logs = iter(np.log(self.values).tolist())
        for night, unit, count in zip(
            self.nights, self._unit.tolist(), self._count.tolist(), strict=True
        ):
            yield night, unit, [*itertools.islice(logs, count)]


def middle(rows: np.ndarray, scale: float | None = None) -> np.ndarray:
    """Return the mean of repeats (the last axis), clipped about their median.

    The upper median of an even number is used, so a healthy repeat refutes a slow first one.

    :arg scale: standard deviation of one repeat; without it, the median is returned.
    """
    ordered = np.sort(rows, axis=-1)
    count = ordered.shape[-1]
    centre = ordered[..., count // 2 : count // 2 + 1]
    if scale is None:
        return centre[..., 0] if count % 2 or count == 2 else ordered[
            ..., count // 2 - 1 : count // 2 + 1].mean(axis=-1)  # fmt: skip
    return np.clip(ordered, centre - 2.5 * scale, centre + 2.5 * scale).mean(axis=-1)


def combine(
    cells: dict[tuple[int, int], list[float]], nights: int, units: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return values and variance factors, nights x units, of single and repeated measurements.

    :arg cells: night and unit -> logarithms, in the order of measuring.
    """
    values = np.full((nights, units), np.nan)
    factors = np.ones((nights, units))
    by_count: dict[int, list[tuple[int, int]]] = {}
    for cell, rows in cells.items():
        by_count.setdefault(len(rows), []).append(cell)
        values[cell] = rows[0]
    if set(by_count) <= {1}:
        return values, factors
    usual = max(by_count, key=lambda count: len(by_count[count]))
    inside = _inside(cells, by_count, usual)
    kinds = np.zeros(units, int)
    typical = np.full((nights, units), np.nan)
    for cell in by_count[usual]:
        typical[cell] = np.mean(cells[cell])
    level, _ = common_mode(typical, kinds)
    noise, _ = noise_of(*steps_of(typical - level[:, kinds], factors))
    scale, common = noise, 0.0
    if len(inside) >= 20:
        within = max(MAD_TO_STD * float(np.median(np.abs(inside))), LEAST_NOISE)
        between = max(noise**2 - within**2 / usual, 0.0)
        common = between / (between + within**2)
        scale = within
        # The common part of repeats is only used if it is larger than its uncertainty.
        if common < 2 * np.sqrt(2 / (MAD_EFFICIENCY * len(inside))):
            common = 0.0
    for count, listed in by_count.items():
        if count > 1:
            where = tuple(np.transpose(listed))
            values[where] = middle(np.array([cells[cell] for cell in listed]), scale)
            factors[where] = common + (1 - common) / count
    return values, factors


def _inside(
    cells: dict[tuple[int, int], list[float]],
    by_count: dict[int, list[tuple[int, int]]],
    usual: int,
) -> np.ndarray:
    """Return differences of repeats from their mean, as wide as single ones.

    If most units are measured once, the first of several values caused the repeat, and is skipped.
    """
    found = []
    for count, listed in by_count.items():
        skip = 1 if usual == 1 else 0
        if count - skip >= 2:
            rows = np.array([cells[cell][skip:] for cell in listed])
            wide = np.sqrt((count - skip) / (count - skip - 1))
            found.append(((rows - rows.mean(axis=1, keepdims=True)) * wide).ravel())
    return np.concatenate(found) if found else np.zeros(0)
