"""References: from the tables to the interval that a figure of merit must lie in.

Pure: knows nothing of ReFrame.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.core import units
from plumbline.core.errors import Fault
from plumbline.core.text import near
from plumbline.reference import links
from plumbline.reference.links import Link
from plumbline.reference.row import Case, Row
from plumbline.reference.tables import SITE, MetricEntry, Tables, load
from plumbline.reference.tolerance import Suspicious, Tolerance
from plumbline.reference.waivers import Waiver


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

    def hold(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.lower <= value <= self.upper

    def edge(self, share: float) -> float:
        """Where a share of the distance from the reference to the bound is used up."""
        bound = self.lower if math.isinf(self.upper) else self.upper
        return self.value + share * (bound - self.value)

    def near(self, value: float, share: float) -> bool:
        """Whether a value that lies within has used up more than a share of the distance."""
        return value < self.edge(share) if math.isinf(self.upper) else value > self.edge(share)

    def too_good(self, value: float, rule: Suspicious) -> bool:
        """Whether a value is better than the reference by more than is credible."""
        if math.isinf(self.upper):
            far = value - self.value > rule.distances * (self.value - self.lower)
            return far and value >= rule.times * self.value
        far = self.value - value > rule.distances * (self.upper - self.value)
        return far and rule.times * value <= self.value


@dataclass(frozen=True)
class Judgement:
    """A figure of merit, summarized over its samples and held against its bounds.

    :ivar verdict: ``pass``, ``fail``, ``above-ceiling``, ``not-asserted``; or ``waived``, which
        failed and is covered by a waiver.
    :ivar ceiling: the theoretical peak, if one is known; ``ceiling_id``, where it is printed.
    :ivar reason: why nothing is asserted although there is a row; empty otherwise.
    :ivar better: ``higher``, ``lower`` or ``neither``.
    :ivar near: whether it passed within the warning band near its bound.
    :ivar waiver: the waiver that covers it, if it is waived.
    :ivar suspicious: whether it passed and is better than its reference by more than is credible.
    :ivar beyond: of a figure that passed, the samples beyond the bound of a single one, from 1 on.
    """

    value: float
    statistic: str
    verdict: str
    bounds: Bounds | None
    ceiling: float | None
    ceiling_id: str | None
    reason: str = ""
    better: str = "neither"
    near: bool = False
    waiver: Waiver | None = None
    suspicious: bool = False
    beyond: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ceiling:
    """The theoretical peak of a figure of merit, in its unit.

    :ivar row: the id of the row that prints the peak.
    :ivar times: how many times the printed peak the figure may reach: both directions, several
        links, several nodes.
    :ivar link: what the figure's bytes cross; empty where the row is of the same quantity.
    """

    value: float
    row: str
    times: float = 1
    link: str = ""

    @property
    def key(self) -> str:
        """The row and how many times its peak, as an inventory has it."""
        return self.row if self.times == 1 else f"{self.row} x{self.times:g}"

    def __str__(self) -> str:
        return f"{self.row}, {self.link}" if self.link else self.row


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

    def fom(self, benchmark: str, metric: str) -> MetricEntry:
        """What is registered of a metric.

        :raises Fault: if it is not registered.
        """
        try:
            return self.tables.foms[benchmark][metric]
        except KeyError:
            told = near(metric, self.tables.foms.get(benchmark, {}))
            raise Fault(
                f"reference/foms.yaml: benchmark {benchmark!r} has no metric {metric!r}; {told}; "
                f"add it with its unit and class",
                code="reference.unknown-metric",
            ) from None

    def rule(self, fom: MetricEntry) -> Tolerance:
        """The tolerance of a metric's class."""
        return self.tables.rules.classes[fom.tolerance]

    def rule_of(self, row: Row, fom: MetricEntry | None = None) -> Tolerance:
        """The tolerance of a row: its class's, or where more is printed of the row, what
        ``exceptions`` of ``tolerance.yaml`` has in the place of the class's floor and reason.

        :arg fom: what is measured, where that is another program's metric than the row's.
        """
        rule = self.rule(fom or self.fom(row.benchmark, row.metric))
        found = self.tables.rules.exception(row.id)
        if found is None:
            return rule
        floor = found.floor
        if found.variation:
            variation = self.tables.rows[found.variation]
            floor = variation.value * units.factor(variation.unit, "1")
        return rule.model_copy(update={"floor": floor, "reason": found.reason})

    def matching(self, case: Case, metric: str, size: int | None, kind: str) -> list[Row]:
        """The rows of a kind that match a case best, all of them where several match equally.

        A metric's own rows win over those of another program's that is the same quantity, and a
        site's own over published ones. Rows that bound nothing (data, and measured rows of a
        statistic that never decides) stand in no other row's way.
        """
        own = self._best(case, [(case.benchmark, metric)], size, kind)
        return own or self._best(case, self._same(case.benchmark, metric), size, kind)

    def _same(self, benchmark: str, metric: str) -> list[tuple[str, str]]:
        """Benchmarks and metrics of other programs that measure the same quantity."""
        return [_parts(name) for name in self.fom(benchmark, metric).same_as]

    def _best(
        self, case: Case, names: list[tuple[str, str]], size: int | None, kind: str
    ) -> list[Row]:
        best: tuple[bool, int] | None = None
        found: list[Row] = []
        for benchmark, metric in names:
            fom = self.fom(benchmark, metric)
            for row in self._by_metric.get((case.system, benchmark, metric), ()):
                if row.kind != kind or not self.may_decide(row):
                    continue
                score = self._score(row, case, size, fom)
                if score is None:
                    continue
                rank = (row.source == SITE, score)
                if best is None or rank > best:
                    best, found = rank, []
                if rank == best:
                    found.append(row)
        return found

    def may_decide(self, row: Row) -> bool:
        """Whether a row can bound or cap anything."""
        rules = self.tables.rules
        rule = self.rule(self.fom(row.benchmark, row.metric))
        if row.kind == "measured" and not rule.decides(row, rules.decides):
            return False
        return all(self.tables.conditions[key].role != "data" for key in row.conditions)

    def _score(self, row: Row, case: Case, size: int | None, fom: MetricEntry) -> int | None:
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

    def bounds(
        self, case: Case, metric: str, size: int | None, runs: int | None = None
    ) -> Bounds | None:
        """The interval for a figure of merit of a case, ``None`` where no row bounds it.

        :arg runs: samples that the figure is summarized from; unless told, as few as its class
            asks for.
        """
        fom = self.fom(case.benchmark, metric)
        rows = self._deciding(case, metric, size)
        if not rows or (runs is not None and runs < self.rule(fom).samples):
            return None
        return self.bounds_of(rows[0], tuple(row.id for row in rows[1:]), runs, fom)

    def _deciding(self, case: Case, metric: str, size: int | None) -> list[Row]:
        """The rows that match a case best, the one that decides first."""
        order = {statistic: place for place, statistic in enumerate(self.tables.rules.decides)}
        rows = self.matching(case, metric, size, "measured")
        return sorted(rows, key=lambda row: (order.get(row.statistic, 0), row.id))

    def bounds_of(
        self,
        row: Row,
        others: tuple[str, ...] = (),
        runs: int | None = None,
        fom: MetricEntry | None = None,
    ) -> Bounds | None:
        """The interval that a row gives, by the rule of its class, to a summary of so many runs.

        ``None`` where the spread is so wide that no measurement could fail.

        :arg runs: unless told, as few as the class asks for.
        :arg fom: what is measured, where that is another program's metric than the row's.
        """
        fom = fom or self.fom(row.benchmark, row.metric)
        rule = self.rule_of(row, fom)
        value, spread = row.used(fom.unit)
        half_value, half_spread = self.tables.half_digits(row, fom.unit)
        noise = rule.spreads * spread
        if rule.distribution:
            # Both numbers are rounded: a printed spread of 0.0 is none of exactly nothing.
            behind = int(row.conditions.get("runs", 1))
            errors = math.sqrt(1 / behind + 1 / (runs or rule.samples))
            noise = half_value + rule.spreads * (spread + half_spread) * errors
        distance = max(rule.floor * abs(value), noise, fom.resolution, 2 * half_value)
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

    def ceiling(self, case: Case, metric: str, size: int | None) -> Ceiling | None:
        """The tightest theoretical peak of a figure of merit.

        Where lower is better, a peak is the least that can be. A peak of the same quantity caps it
        whichever program it is printed for, and so does that of each link that its bytes cross.
        """
        fom = self.fom(case.benchmark, metric)
        peaks = []
        for name in [(case.benchmark, metric), *self._same(case.benchmark, metric)]:
            peaks += self._best(case, [name], size, "peak")
            for other in self.fom(*name).ceilings:
                peaks += self._best(case, [_parts(other)], None, "peak")
        found = [Ceiling(row.used(fom.unit)[0], row.id) for row in peaks]
        found += self._of_links(case, metric, fom.unit)
        tightest = max if self.rule(fom).better == "lower" else min
        return tightest(found, key=lambda peak: (peak.value, peak.row), default=None)

    def _of_links(self, case: Case, metric: str, unit: str) -> Iterator[Ceiling]:
        """The figure's ceiling by each link that it crosses: half of the printed last digit above
        the link's peak."""
        for link, times in self.tables.links.crossed(case, f"{case.benchmark}/{metric}"):
            seen = dataclasses.replace(
                case,
                placement=link.seen_as.placement or case.placement,
                conditions=case.conditions | link.seen_as.conditions,
            )
            for name in link.peaks:
                peak = _parts(name)
                for row in self._best(seen, [peak], self.fom(*peak).unstated_size, "peak"):
                    value = row.used(unit)[0] + self.tables.half_digits(row, unit)[0]
                    all_times = times * self.count(link, row)
                    yield Ceiling(value * all_times, row.id, all_times, link.what)

    @staticmethod
    def count(link: Link, row: Row) -> int:
        """How many links of a node a row of its peak says there are."""
        return int(row.conditions.get(link.count, 1))

    def is_peak_of(self, link: Link, row: Row) -> bool:
        """Whether a row prints the peak of a link."""
        name = f"{row.benchmark}/{row.metric}"
        case = Case(row.system, "", row.toolchain, row.benchmark, link.seen_as.placement,
                    row.nodes or 1, row.ppn or 1, link.seen_as.conditions)  # fmt: skip
        fom = self.fom(row.benchmark, row.metric)
        return (
            row.kind == "peak"
            and name in link.peaks
            and links.applies(link.systems, row.system)
            and self.may_decide(row)
            and self._score(row, case, fom.unstated_size, fom) is not None
        )

    def judge(
        self, case: Case, metric: str, size: int | None, samples: Sequence[float]
    ) -> Judgement:
        """Summarizes the samples by the reference's statistic and gives the verdict.

        Where nothing is asserted, the summary is the median; of a distribution it is the mean.
        """
        rule = self.rule(self.fom(case.benchmark, metric))
        bounds = self.bounds(case, metric, size, len(samples))
        peak = self.ceiling(case, metric, size)
        ceiling, ceiling_id = (peak.value, str(peak)) if peak else (None, None)
        value, statistic, verdict = held(samples, rule, bounds, ceiling)
        reason = ""
        if len(samples) < rule.samples and (rows := self._deciding(case, metric, size)):
            reason = (
                f"{rows[0].id} is the mean of a distribution: asserted from {rule.samples} samples "
                f"on, not from {len(samples)}"
            )
        judged = Judgement(
            value, statistic, verdict, bounds, ceiling, ceiling_id, reason, rule.better
        )
        if verdict != "pass" or bounds is None:
            return judged
        rules, single = self.tables.rules, self._of_single(bounds, case, metric, size)
        return dataclasses.replace(
            judged,
            near=bounds.near(value, rules.band(rule)),
            suspicious=bounds.too_good(value, rules.suspicious),
            beyond=tuple(n for n, one in enumerate(samples, 1) if single and not single.hold(one)),
        )

    def _of_single(
        self, bounds: Bounds, case: Case, metric: str, size: int | None
    ) -> Bounds | None:
        """The interval of a single sample: that of the summary, but for a distribution, of which
        one run lies further from the mean than the mean of several."""
        fom = self.fom(case.benchmark, metric)
        if not self.rule(fom).distribution:
            return bounds
        return self.bounds_of(self.tables.rows[bounds.decides], runs=1, fom=fom)


def _parts(name: str) -> tuple[str, str]:
    """Benchmark and metric of ``benchmark/metric``."""
    benchmark, _, metric = name.partition("/")
    return benchmark, metric


def held(
    samples: Sequence[float], rule: Tolerance, bounds: Bounds | None, ceiling: float | None
) -> tuple[float, str, str]:
    """The samples' summary, the statistic that it is, and its verdict.

    The summary is held against the bounds, each sample against the ceiling.
    """
    printed = bounds.statistic if bounds else "mean" if rule.distribution else "median"
    value, statistic = summarize(samples, printed, rule), used(printed, rule)
    lower = rule.better == "lower"
    if ceiling is not None and (min(samples) < ceiling if lower else max(samples) > ceiling):
        return value, statistic, "above-ceiling"
    if bounds is None:
        return value, statistic, "not-asserted"
    return value, statistic, "pass" if bounds.hold(value) else "fail"


def told(bound: float) -> str:
    """A bound in words."""
    return "open" if math.isinf(bound) else f"{bound:.6g}"


def summarize(samples: Sequence[float], statistic: str, rule: Tolerance) -> float:
    """One value from the samples, by the statistic that :func:`used` gives."""
    statistic = used(statistic, rule)
    if statistic == "best":
        return max(samples) if rule.better == "higher" else min(samples)
    return statistics.fmean(samples) if statistic == "mean" else statistics.median(samples)


def used(printed: str, rule: Tolerance) -> str:
    """The statistic of our samples that is compared with a reference of another one.

    A single or unstated statistic is met by the median, which one odd sample cannot move.
    """
    known = printed == "mean" or (printed == "best" and rule.better != "neither")
    return printed if known else "median"


@functools.cache
def loaded(folder: Path) -> References:
    """The references of a folder, read once.

    :raises Fault: with every fault of every table, a line each.
    """
    return References(load(folder))
