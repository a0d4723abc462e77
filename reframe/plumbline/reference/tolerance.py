"""The model of ``tolerance.yaml``: how far a figure of merit may be from its reference.

Pure: reads no file.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import Annotated, Literal

import pydantic

from plumbline.core import units
from plumbline.reference.row import Row, Statistic, Strict, Text

Share = Annotated[float, pydantic.Field(gt=0, lt=1)]


class Tolerance(Strict):
    """How far a figure of merit of one class may be from its reference.

    ``better: neither`` is for figures without bounds: shares, ratios, capacities. With
    ``distribution``, the printed spread is that of single runs, so the allowed distance between a
    mean of n runs and a printed mean is ``spreads * spread * sqrt(1/runs + 1/n)``. Only rows of
    statistic ``mean`` with a spread give bounds then.

    :ivar samples: the least number of samples to compare.
    :ivar warning_share: the class's own share for the warning band.
    """

    better: Literal["higher", "lower", "neither"]
    floor: Annotated[float, pydantic.Field(ge=0, lt=1)]
    spreads: Annotated[float, pydantic.Field(ge=0)]
    distribution: bool = False
    samples: Annotated[int, pydantic.Field(ge=1)] = 1
    warning_share: Share | None = None
    reason: Text

    def decides(self, row: Row, statistics: list[Statistic]) -> bool:
        """Return whether a measured row of this class gives bounds.

        :arg statistics: those that give bounds in classes without a distribution.
        """
        if self.better == "neither":
            return False
        if self.distribution:
            return row.statistic == "mean" and row.spread is not None
        return row.statistic in statistics


class Exceptional(Strict):
    """An exception: rows with a floor of their own instead of their class's, or of which another
    statistic gives the bounds.

    :ivar rows: their ids, or patterns of ids (``*`` and ``?`` as in a shell).
    :ivar floor: relative, as in a class.
    :ivar variation: id of the row whose printed run-to-run variation is the floor.
    :ivar statistic: of these rows, only those of this statistic give bounds.
    """

    rows: Annotated[list[Text], pydantic.Field(min_length=1)]
    floor: Share | None = None
    variation: str = ""
    statistic: Statistic | None = None
    reason: Text

    @pydantic.model_validator(mode="after")
    def _one_of_three(self) -> Exceptional:
        if sum(map(bool, (self.floor, self.variation, self.statistic))) != 1:
            raise ValueError("give either a floor, a variation, or a statistic")
        return self

    def matches(self, name: str) -> bool:
        """Return whether it applies to the row with this id."""
        return self._pattern.match(name) is not None

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        """All of its patterns at once: each row of each table is compared with it."""
        return re.compile("|".join(map(fnmatch.translate, self.rows)))


class Baseline(Strict):
    """Rules of site baselines.

    :ivar sessions: the least number of sessions of a case.
    :ivar noise: the largest spread of a figure, relative to its value.
    :ivar alarms: share of a healthy system's sessions that may fail by a figure; the spread of few
        sessions is widened accordingly.
    """

    sessions: Annotated[int, pydantic.Field(ge=2)]
    noise: Share
    alarms: Annotated[float, pydantic.Field(gt=0, le=0.1)]


class Band(Strict):
    """The warning band inside the bounds.

    :ivar share: of the distance from the reference to the bound; a passing figure beyond it is
        reported as near its bound.
    """

    share: Share
    reason: Text


class Wide(Strict):
    """Bounds so wide that they find no ordinary fault.

    :ivar loss: relative; bounds that a larger one passes are wide.
    """

    loss: Share
    reason: Text


class Suspicious(Strict):
    """How much better than its reference a suspicious figure is. Both measures must be exceeded.

    :ivar distances: multiple of the distance from the reference to its bound.
    :ivar times: factor between figure and reference.
    """

    distances: Annotated[float, pydantic.Field(ge=1)]
    times: Annotated[float, pydantic.Field(gt=1)]
    reason: Text


class Tolerances(Strict):
    """``tolerance.yaml``."""

    classes: dict[str, Tolerance]
    decides: list[Statistic]
    warning: Band
    wide: Wide
    suspicious: Suspicious
    baseline: Baseline
    exceptions: list[Exceptional] = []

    def of_unit(self, unit: str, better: str) -> str:
        """Return the class of a figure that is not registered: what its unit is of, if that agrees
        with its direction.

        :arg better: ``higher``, ``lower`` or ``neither``.
        """
        known = units.quantity(unit)
        if known and units.better(unit) == better:
            return known
        return {"higher": "rate", "lower": "time"}.get(better, "data")

    def may_decide(self, row: Row, rule: Tolerance) -> bool:
        """Return whether the statistic of a measured row gives bounds.

        :arg rule: of its class.
        """
        for found in self.exceptions:
            if found.statistic and found.matches(row.id):
                return row.statistic == found.statistic
        return rule.decides(row, self.decides)

    def exception(self, name: str) -> Exceptional | None:
        """Return the exception for the row with this id, if any."""
        return next((found for found in self.exceptions if found.matches(name)), None)

    def band(self, rule: Tolerance) -> float:
        """Return the share of the distance to a bound where the warning band of a class begins."""
        return self.warning.share if rule.warning_share is None else rule.warning_share
