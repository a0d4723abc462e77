"""Tolerances: how far a figure of merit may lie from its reference, and when it is near its bound.

Pure: what ``tolerance.yaml`` holds.
"""

from __future__ import annotations

import fnmatch
from typing import Annotated, Literal

import pydantic

from plumbline.reference.row import Row, Statistic, Text

Share = Annotated[float, pydantic.Field(gt=0, lt=1)]


class Tolerance(pydantic.BaseModel):
    """How far a figure of merit of one class may lie from its reference.

    ``better: neither`` is for figures that bound nothing: shares, ratios, capacities. With
    ``distribution``, the printed spread is that of single runs, so that the distance of a mean of n
    from a mean of the printed number of runs is ``spreads * spread * sqrt(1/runs + 1/n)``; only a
    row of statistic ``mean`` with a spread says both.

    :ivar samples: samples below which nothing is asserted.
    :ivar near: the class's own share for the warning band.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    better: Literal["higher", "lower", "neither"]
    floor: Annotated[float, pydantic.Field(ge=0, lt=1)]
    spreads: Annotated[float, pydantic.Field(ge=0)]
    distribution: bool = False
    samples: Annotated[int, pydantic.Field(ge=1)] = 1
    near: Share | None = None
    reason: Text

    def decides(self, row: Row, statistics: list[Statistic]) -> bool:
        """Whether a measured row of this class gives bounds.

        :arg statistics: those that do in other classes.
        """
        if self.better == "neither":
            return False
        if self.distribution:
            return row.statistic == "mean" and row.spread is not None
        return row.statistic in statistics


class Exceptional(pydantic.BaseModel):
    """Rows of which more is printed than their class knows: what takes the place of its floor.

    :ivar rows: their ids, or patterns of ids (``*`` and ``?`` as in a shell).
    :ivar floor: relative, as that of a class.
    :ivar variation: id of the row whose printed run-to-run variation is the floor.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    rows: Annotated[list[Text], pydantic.Field(min_length=1)]
    floor: Share | None = None
    variation: str = ""
    reason: Text

    @pydantic.model_validator(mode="after")
    def _one_of_two(self) -> Exceptional:
        if (self.floor is None) == (not self.variation):
            raise ValueError("give either a floor, or the row whose printed variation it is")
        return self

    def fits(self, name: str) -> bool:
        """Whether it is about the row of this id."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.rows)


class Baseline(pydantic.BaseModel):
    """What a site baseline takes.

    :ivar sessions: sessions below which a case has no baseline.
    :ivar noise: spread, relative to the value, above which a figure has none.
    :ivar alarms: sessions of a healthy system that may fail by a figure, of all; the spread of few
        sessions is widened until it is so.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    sessions: Annotated[int, pydantic.Field(ge=2)]
    noise: Share
    alarms: Annotated[float, pydantic.Field(gt=0, le=0.1)]


class Band(pydantic.BaseModel):
    """The warning band inside the bounds.

    :ivar near: share of the distance from the reference to the bound beyond which a figure that
        passes is told as near its bound.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    near: Share
    reason: Text


class Suspicious(pydantic.BaseModel):
    """How much better than its reference a figure must be to be suspicious: both at once.

    :ivar distances: how many times the distance from the reference to its bound, on the good side.
    :ivar times: how many times as good.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    distances: Annotated[float, pydantic.Field(ge=1)]
    times: Annotated[float, pydantic.Field(gt=1)]
    reason: Text


class Tolerances(pydantic.BaseModel):
    """``tolerance.yaml``."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    classes: dict[str, Tolerance]
    decides: list[Statistic]
    warning: Band
    suspicious: Suspicious
    baseline: Baseline
    exceptions: list[Exceptional] = []

    def exception(self, name: str) -> Exceptional | None:
        """What takes the place of the class's floor for the row of this id."""
        return next((found for found in self.exceptions if found.fits(name)), None)

    def band(self, rule: Tolerance) -> float:
        """The share of the distance to a bound from which on a figure of a class is near it."""
        return self.warning.near if rule.near is None else rule.near
