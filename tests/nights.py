"""Synthetic nightly series, seeded: white and autocorrelated noise, gaps, and changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

#: Level of every series.
LEVEL = 100.0
#: Share of the nights that ``outlier`` noise hits, and how deep (share of the value).
OUTLIER_NIGHTS = 0.02
OUTLIER_DEPTH = 0.05, 0.30


@dataclass(frozen=True)
class Plan:
    """What a set of series is made of; sizes are relative, 0.02 is 2 %.

    :ivar noise: ``gaussian``, ``lognormal``, ``outlier`` (gaussian, and single nights far too low)
        or ``heavy`` (Student's t with three degrees of freedom).
    :ivar change: ``step``, ``drift``, ``transient`` or empty.
    :ivar size: of the change; negative: the value goes down.
    :ivar over: nights that the drift takes, or that the transient lasts.
    :ivar slow: standard deviation of the autocorrelated noise, or amplitude of ``sine``.
    :ivar memory: its correlation from one night to the next (``ar``), or the period in nights
        (``sine``).
    :ivar gaps: share of the nights that are missing.
    :ivar retest: every night was measured twice.
    :ivar steps: several changes instead of one, each with the fewest and most nights since the one
        before it (the first: since the beginning) and its size.
    :ivar digits: significant digits of the values, of levels spread over a decade; 0: all.
    """

    noise: str = "gaussian"
    level: float = 0.01
    nights: int = 180
    change: str = ""
    size: float = 0.0
    over: int = 3
    slow: float = 0.0
    memory: float = 0.95
    shape: str = "ar"
    gaps: float = 0.0
    retest: bool = False
    better: str = "higher"
    earliest: int = 40
    latest: int = 150
    steps: tuple[tuple[int, int, float], ...] = ()
    digits: int = 0

    def but(self, **fields: object) -> Plan:
        return replace(self, **fields)


@dataclass
class Nights:
    """Series of one plan.

    :ivar values: series x nights; NaN is a gap.
    :ivar second: the second measurement, NaN where there is none.
    :ivar starts: series x changes: first night of each.
    """

    plan: Plan
    values: np.ndarray
    second: np.ndarray
    starts: np.ndarray

    @property
    def start(self) -> np.ndarray:
        """First night of each series' last change; -1 without a change."""
        return np.column_stack([np.full(len(self.values), -1), self.starts])[:, -1]


def make(plan: Plan, count: int, seed: int) -> Nights:
    """So many series of a plan. Equal seeds make equal series."""
    rng = np.random.default_rng(seed)
    shape = count, plan.nights
    truth = LEVEL * np.exp(_slow(plan, shape, rng))
    starts = np.empty((count, 0), dtype=int)
    if plan.change:
        starts = rng.integers(plan.earliest, min(plan.latest, plan.nights - 20) + 1, (count, 1))
        truth = truth * (1 + plan.size * _course(plan, starts[:, 0], shape))
    elif plan.steps:
        apart = [rng.integers(low, high + 1, count) for low, high, _ in plan.steps]
        starts = np.cumsum(apart, axis=0).T
        for start, (*_, size) in zip(starts.T, plan.steps, strict=True):
            truth = truth * np.where(np.arange(plan.nights) < start[:, None], 1, 1 + size)
    values = truth * _noise(plan, shape, rng)
    second = truth * _noise(plan, shape, rng) if plan.retest else np.full(shape, np.nan)
    missing = rng.random(shape) < plan.gaps
    values[missing] = second[missing] = np.nan
    if plan.digits:
        scale = 10 ** rng.random((count, 1))
        values, second = (_rounded(part * scale, plan.digits) / scale for part in (values, second))
    return Nights(plan, values, second, starts)


def _rounded(values: np.ndarray, digits: int) -> np.ndarray:
    unit = 10.0 ** (np.floor(np.log10(values)) + 1 - digits)
    return np.round(values / unit) * unit


def _course(plan: Plan, start: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Share of the change that each night has of it."""
    since = np.arange(shape[1]) - start[:, None]
    if plan.change == "step":
        return (since >= 0) * 1.0
    if plan.change == "transient":
        return ((since >= 0) & (since < plan.over)) * 1.0
    return np.clip(since / plan.over, 0, 1)


def _noise(plan: Plan, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    if plan.noise == "lognormal":
        return np.exp(plan.level * rng.standard_normal(shape))
    if plan.noise == "heavy":
        return np.exp(plan.level * rng.standard_t(3, shape) / np.sqrt(3))
    factor = 1 + plan.level * rng.standard_normal(shape)
    if plan.noise == "outlier":
        hit = rng.random(shape) < OUTLIER_NIGHTS
        factor *= np.where(hit, 1 - rng.uniform(*OUTLIER_DEPTH, shape), 1.0)
    return factor


def _slow(plan: Plan, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    if not plan.slow:
        return np.zeros(shape)
    if plan.shape == "sine":
        phase = rng.uniform(0, 2 * np.pi, (shape[0], 1))
        return plan.slow * np.sin(2 * np.pi * np.arange(shape[1]) / plan.memory + phase)
    found = np.empty(shape)
    found[:, 0] = rng.standard_normal(shape[0])
    kick = np.sqrt(1 - plan.memory**2)
    for night in range(1, shape[1]):
        found[:, night] = plan.memory * found[:, night - 1]
        found[:, night] += kick * rng.standard_normal(shape[0])
    return plan.slow * found


def rows(nights: Nights) -> list[str]:
    """The lines of a file that ``plumbline trend --input`` reads."""
    lines = ["series,night,value,better,retest"]
    for number, (values, second) in enumerate(zip(nights.values, nights.second, strict=True)):
        for night, (value, again) in enumerate(zip(values, second, strict=True)):
            cells = ["" if np.isnan(v) else f"{v:.6g}" for v in (value, again)]
            lines.append(f"s{number},{night},{cells[0]},{nights.plan.better},{cells[1]}")
    return lines
