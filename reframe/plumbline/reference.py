"""References: from the tables to the interval that a figure of merit must lie in.

Pure: knows nothing of ReFrame.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plumbline import table
from plumbline.errors import Fault
from plumbline.table import Fom, Row, Tables, Tolerance


@dataclass(frozen=True)
class Case:
    """The conditions under which a figure of merit was measured.

    :ivar conditions: what has no column of its own; a row's conditions must all be met.
    """

    system: str
    partition: str
    environment: str
    benchmark: str
    placement: str
    nodes: int
    ppn: int
    conditions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """The interval that a figure of merit must lie in, and where it comes from.

    :ivar value: the reference in the figure's unit.
    :ivar lower: lower bound, minus infinity where open.
    :ivar upper: upper bound, infinity where open.
    :ivar statistic: how samples are summarized before they are compared.
    :ivar decides: id of the row that decides.
    :ivar source: source and locator of that row.
    :ivar others: ids of the rows that match equally well.
    """

    value: float
    lower: float
    upper: float
    statistic: str
    decides: str
    source: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A figure of merit, summarized over its samples and held against its bounds.

    :ivar verdict: ``pass``, ``fail``, ``above-ceiling`` or ``not-asserted``.
    :ivar ceiling: the theoretical peak, if one is known.
    """

    value: float
    statistic: str
    verdict: str
    bounds: Bounds | None
    ceiling: float | None
    ceiling_id: str | None


class References:
    """The tables, asked for the bounds of a measured figure of merit."""

    def __init__(self, tables: Tables):
        self.tables = tables
        self._by_metric: dict[tuple[str, str, str], list[Row]] = {}
        for row in tables.rows.values():
            self._by_metric.setdefault((row.system, row.benchmark, row.metric), []).append(row)

    @property
    def rows(self) -> list[Row]:
        return list(self.tables.rows.values())

    def fom(self, benchmark: str, metric: str) -> Fom:
        """What is registered of a metric.

        :raises Fault: if it is not registered.
        """
        try:
            return self.tables.foms[benchmark][metric]
        except KeyError:
            raise Fault(
                f"reference/foms.yaml: benchmark {benchmark!r} has no metric {metric!r}; add it "
                f"with its unit and class"
            ) from None

    def rule(self, fom: Fom) -> Tolerance:
        """The tolerance of a metric's class."""
        return self.tables.rules.classes[fom.tolerance]

    def matching(self, case: Case, metric: str, size: int | None, kind: str) -> list[Row]:
        """The rows of a kind that match a case best, all of them where several match equally.

        A site's own rows win over published ones. Rows that bound nothing (data, and measured rows
        of a statistic that never decides) stand in no other row's way.
        """
        fom = self.fom(case.benchmark, metric)
        best: tuple | None = None
        found: list[Row] = []
        for row in self._by_metric.get((case.system, case.benchmark, metric), ()):
            if row.kind != kind or not self._may_decide(row):
                continue
            score = self._score(row, case, size, fom)
            if score is None:
                continue
            rank = (row.source == table.SITE, score)
            if best is None or rank > best:
                best, found = rank, []
            if rank == best:
                found.append(row)
        return found

    def _may_decide(self, row: Row) -> bool:
        if row.kind == "measured" and row.statistic not in self.tables.rules.decides:
            return False
        return all(self.tables.conditions[key].role != "data" for key in row.conditions)

    def _score(self, row: Row, case: Case, size: int | None, fom: Fom) -> int | None:
        """How many of the row's stated cells the case meets; ``None`` if it misses one."""
        means = row.message_size
        if means is None and size is not None:
            means = fom.unstated_size
        # A size is part of what was measured: a figure of another size is another figure.
        if means != size:
            return None
        stated = [
            (row.toolchain or None, case.environment),
            (row.placement or None, case.placement),
            (row.message_size, size),
            (row.nodes, case.nodes),
            (row.ppn, case.ppn),
        ]
        conditions = {"partition": case.partition, **case.conditions}
        stated += [
            (value, conditions.get(key))
            for key, value in row.conditions.items()
            if self.tables.conditions[key].role == "condition"
        ]
        met = [(told, got) for told, got in stated if told is not None]
        return len(met) if all(told == got for told, got in met) else None

    def bounds(self, case: Case, metric: str, size: int | None, runs: int = 1) -> Bounds | None:
        """The interval for a figure of merit of a case, ``None`` where no row bounds it.

        :arg runs: samples that the figure is summarized from.
        """
        order = self.tables.rules.decides
        rows = self.matching(case, metric, size, "measured")
        rows.sort(key=lambda row: (order.index(row.statistic), row.id))
        if not rows or self.rule(self.fom(case.benchmark, metric)).better == "neither":
            return None
        return self.bounds_of(rows[0], tuple(row.id for row in rows[1:]), runs)

    def bounds_of(self, row: Row, others: tuple[str, ...] = (), runs: int = 1) -> Bounds | None:
        """The interval that a row gives, by the rule of its class, to a summary of so many runs.

        ``None`` where the spread is so wide that no measurement could fail.
        """
        fom = self.fom(row.benchmark, row.metric)
        rule = self.rule(fom)
        value, spread = row.used(fom.unit)
        if rule.distribution:
            spread *= math.sqrt(1 / int(row.conditions.get("runs", 1)) + 1 / runs)
        distance = max(rule.floor * abs(value), rule.spreads * spread, fom.resolution)
        if rule.better == "higher" and value <= distance:
            return None
        return Bounds(
            value,
            value - distance if rule.better == "higher" else -math.inf,
            value + distance if rule.better == "lower" else math.inf,
            row.statistic,
            row.id,
            f"{self.tables.sources[row.source].short}, {row.locator}",
            others,
        )

    def ceiling(
        self, case: Case, metric: str, size: int | None
    ) -> tuple[float, str] | tuple[None, None]:
        """The tightest theoretical peak of a figure of merit, in its unit, and its row's id.

        Where lower is better, a peak is the least that can be.
        """
        fom = self.fom(case.benchmark, metric)
        peaks = self.matching(case, metric, size, "peak")
        for other in fom.ceilings:
            benchmark, _, capped = other.partition("/")
            of_other = Case(**{**vars(case), "benchmark": benchmark})
            peaks += self.matching(of_other, capped, None, "peak")
        tightest = max if self.rule(fom).better == "lower" else min
        return tightest(((row.used(fom.unit)[0], row.id) for row in peaks), default=(None, None))

    def judge(
        self, case: Case, metric: str, size: int | None, samples: Sequence[float]
    ) -> Judgement:
        """Summarizes the samples by the reference's statistic and gives the verdict.

        Where nothing is asserted, the summary is the median.
        """
        bounds = self.bounds(case, metric, size, len(samples))
        rule = self.rule(self.fom(case.benchmark, metric))
        statistic = bounds.statistic if bounds else "median"
        value = summarize(samples, statistic, rule)
        ceiling, ceiling_id = self.ceiling(case, metric, size)
        lower = rule.better == "lower"
        if ceiling is not None and (min(samples) < ceiling if lower else max(samples) > ceiling):
            verdict = "above-ceiling"
        elif bounds is None:
            verdict = "not-asserted"
        else:
            verdict = "pass" if bounds.lower <= value <= bounds.upper else "fail"
        return Judgement(value, statistic, verdict, bounds, ceiling, ceiling_id)


def told(bound: float) -> str:
    """A bound in words."""
    return "open" if math.isinf(bound) else f"{bound:.6g}"


def summarize(samples: Sequence[float], statistic: str, rule: Tolerance) -> float:
    """One value from the samples, by the statistic that the reference printed.

    A single or unstated statistic is met by the median, which one odd sample cannot move.
    """
    if statistic == "best" and rule.better != "neither":
        return max(samples) if rule.better == "higher" else min(samples)
    if statistic == "mean":
        return statistics.fmean(samples)
    return statistics.median(samples)


@functools.cache
def loaded(folder: Path) -> References:
    """The references of a folder, read once.

    :raises Fault: with every fault of every table, a line each.
    """
    return References(table.load(folder))
