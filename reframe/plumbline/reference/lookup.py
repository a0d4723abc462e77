"""References: from the tables to the interval in which a figure of merit passes.

Pure: independent of ReFrame.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plumbline.core import units
from plumbline.core.errors import Fault
from plumbline.core.paths import Folder
from plumbline.core.text import suggest
from plumbline.reference import links
from plumbline.reference.links import Link
from plumbline.reference.registers import MetricEntry, Tables
from plumbline.reference.row import SETVAR, SITE, Case, Row
from plumbline.reference.tables import load
from plumbline.reference.tolerance import Suspicious, Tolerance
from plumbline.reference.waivers import Waiver


@dataclass(frozen=True)
class Bounds:
    """The interval in which a figure of merit passes, and its origin.

    :ivar value: the reference in the figure's unit.
    :ivar lower: lower bound, minus infinity if open.
    :ivar upper: upper bound, infinity if open.
    :ivar statistic: how samples are summarized before they are compared.
    :ivar decides: id of the row that gives the bounds.
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

    def contains(self, value: float) -> bool:
        """Return whether a value passes."""
        return self.lower <= value <= self.upper

    def edge(self, share: float) -> float:
        """Return the value at a share of the distance from the reference to the bound."""
        bound = self.lower if math.isinf(self.upper) else self.upper
        return self.value + share * (bound - self.value)

    @property
    def loss(self) -> float:
        """The largest loss that passes, relative to the reference."""
        return abs(self.edge(1) / self.value - 1)

    def near_bound(self, value: float, share: float) -> bool:
        """Return whether a passing value is beyond a share of the distance to the bound."""
        return value < self.edge(share) if math.isinf(self.upper) else value > self.edge(share)

    def too_good(self, value: float, rule: Suspicious) -> bool:
        """Return whether a value is suspiciously better than the reference."""
        if math.isinf(self.upper):
            is_far = value - self.value > rule.distances * (self.value - self.lower)
            return is_far and value >= rule.times * self.value
        is_far = self.value - value > rule.distances * (self.upper - self.value)
        return is_far and rule.times * value <= self.value


@dataclass(frozen=True)
class Judgement:
    """A figure of merit, summarized over its samples and compared with its bounds.

    :ivar verdict: ``pass``, ``fail``, ``above-ceiling``, ``not-asserted`` (no reference), or
        ``waived``: it failed and a waiver covers it.
    :ivar ceiling: the theoretical peak, if known; ``ceiling_id`` is its row.
    :ivar reason: why a matching row is not used; empty otherwise.
    :ivar better: ``higher``, ``lower`` or ``neither``.
    :ivar near_bound: whether it passed within the warning band.
    :ivar waiver: the waiver that covers it, if it is waived.
    :ivar suspicious: whether it passed and is suspiciously better than its reference.
    :ivar beyond: numbers, from 1, of the samples beyond their bound, if the figure passed.
    """

    value: float
    statistic: str
    verdict: str
    bounds: Bounds | None
    ceiling: float | None
    ceiling_id: str | None
    reason: str = ""
    better: str = "neither"
    near_bound: bool = False
    waiver: Waiver | None = None
    suspicious: bool = False
    beyond: tuple[int, ...] = ()

    @property
    def loss(self) -> float | None:
        """How much worse the value is than its reference, relative; ``None`` without bounds."""
        return None if self.bounds is None else loss_of(self.value, self.bounds.value, self.better)


@dataclass(frozen=True)
class Ceiling:
    """The theoretical peak of a figure of merit, in its unit.

    :ivar row: the id of the row of the peak.
    :ivar times: the multiple of the printed peak that the figure may reach, as for both
        directions, several links or several nodes.
    :ivar link: the link that the bytes cross; empty if the row is of the same quantity.
    """

    value: float
    row: str
    times: float = 1
    link: str = ""

    @property
    def key(self) -> str:
        """The row and the multiple of its peak, as in an inventory."""
        return self.row if self.times == 1 else f"{self.row} x{self.times:g}"

    def __str__(self) -> str:
        return f"{self.row}, {self.link}" if self.link else self.row


class References:
    """Look up the bounds of a measured figure of merit in the tables."""

    def __init__(self, tables: Tables):
        self.tables = tables
        self._by_metric: dict[tuple[str, str, str], list[Row]] = {}
        for row in tables.rows.values():
            self._by_metric.setdefault((row.system, row.benchmark, row.metric), []).append(row)

    @property
    def rows(self) -> list[Row]:
        return list(self.tables.rows.values())

    def fom(self, benchmark: str, metric: str) -> MetricEntry:
        """Return the registration of a metric.

        :raises Fault: if it is not registered.
        """
        try:
            return self.tables.foms[benchmark][metric]
        except KeyError:
            raise Fault(
                f"reference/foms.yaml: benchmark {benchmark!r} has no metric {metric!r}: add it "
                f"with its unit and class; {suggest(metric, self.tables.foms.get(benchmark, {}))}",
                code="reference.unknown-metric",
            ) from None

    def rule(self, fom: MetricEntry) -> Tolerance:
        """Return the tolerance of a metric's class.

        :raises Fault: if the class of an unregistered metric does not exist.
        """
        try:
            return self.tables.rules.classes[fom.tolerance]
        except KeyError:
            raise Fault(
                f"reference/tolerance.yaml: no class {fom.tolerance!r}, for figures in "
                f"{fom.unit!r}: add it",
                code="reference.wrong-table",
            ) from None

    def rule_of(self, row: Row, fom: MetricEntry | None = None) -> Tolerance:
        """Return the tolerance of a row: its class's, or that of its exception in
        ``tolerance.yaml``, which replaces the class's floor and reason.

        :arg fom: the measured metric, if it is another program's than the row's.
        """
        rule = self.rule(fom or self.fom(row.benchmark, row.metric))
        exception = self.tables.rules.exception(row.id)
        if exception is None:
            return rule
        floor = rule.floor if exception.floor is None else exception.floor
        if exception.variation:
            variation = self.tables.rows[exception.variation]
            floor = variation.value * units.factor(variation.unit, "1")
        return rule.model_copy(update={"floor": floor, "reason": exception.reason})

    def matching(self, case: Case, metric: str, size: int | None, kind: str) -> list[Row]:
        """Return the rows of a kind that match a case best; several if they match equally.

        A metric's own rows take precedence over those of another program's metric of the same
        quantity, and a site's rows over published ones. Rows that give no bounds (data, and
        measured rows of a statistic that never decides) are ignored.
        """
        own = self._best(case, [(case.benchmark, metric)], size, kind)
        return own or self._best(case, self._same(case.benchmark, metric), size, kind)

    def _same(self, benchmark: str, metric: str) -> list[tuple[str, str]]:
        """Return benchmark and metric of other programs' metrics of the same quantity."""
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
        """Return whether a row can give bounds or a ceiling."""
        rule = self.rule(self.fom(row.benchmark, row.metric))
        if row.kind == "measured" and not self.tables.rules.may_decide(row, rule):
            return False
        return all(self.tables.conditions[key].role != "data" for key in row.conditions)

    def _score(self, row: Row, case: Case, size: int | None, fom: MetricEntry) -> int | None:
        """Return how many stated cells of a row the case meets, ``None`` if not all."""
        row_size = row.message_size
        if row_size is None and size is not None:
            row_size = fom.unstated_size
        # Figures of different sizes are different figures.
        if row_size != size:
            return None
        # A baseline states the variant that it was measured under, and what -S set in a plain
        # check; without these, it is of a case without any.
        if row.source == SITE and _settings(row.conditions) != _settings(case.conditions):
            return None
        # A row that states no mode of the GPUs is of whole ones.
        if row.conditions.get("gpu_mode") != case.conditions.get("gpu_mode"):
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
        pairs = [(wanted, actual) for wanted, actual in stated if wanted is not None]
        return len(pairs) if all(wanted == actual for wanted, actual in pairs) else None

    def bounds(
        self, case: Case, metric: str, size: int | None, runs: int | None = None
    ) -> Bounds | None:
        """Return the interval for a figure of merit of a case, ``None`` if no row gives one.

        :arg runs: number of samples; by default the least that the class requires.
        """
        fom = self.fom(case.benchmark, metric)
        rows = self._deciding(case, metric, size)
        if not rows or (runs is not None and runs < self.rule(fom).samples):
            return None
        return self.bounds_of(rows[0], tuple(row.id for row in rows[1:]), runs, fom)

    def _deciding(self, case: Case, metric: str, size: int | None) -> list[Row]:
        """Return the rows that match a case best, the deciding one first."""
        order = {statistic: rank for rank, statistic in enumerate(self.tables.rules.decides)}
        rows = self.matching(case, metric, size, "measured")
        return sorted(rows, key=lambda row: (order.get(row.statistic, 0), row.id))

    def bounds_of(
        self,
        row: Row,
        others: tuple[str, ...] = (),
        runs: int | None = None,
        fom: MetricEntry | None = None,
    ) -> Bounds | None:
        """Return the interval that a row gives by the rule of its class.

        It is ``None`` if the spread is so wide that no measurement could fail.

        :arg others: ids of the rows that match equally well.
        :arg runs: number of samples; by default the least that the class requires.
        :arg fom: the measured metric, if it is another program's than the row's.
        """
        fom = fom or self.fom(row.benchmark, row.metric)
        rule = self.rule_of(row, fom)
        value, spread = row.used(fom.unit)
        half_value, half_spread = self.tables.half_digits(row, fom.unit)
        noise = rule.spreads * spread
        if rule.distribution:
            # Both numbers are rounded: a printed spread of 0.0 need not be exactly zero.
            row_runs = int(row.conditions.get("runs", 1))
            errors = math.sqrt(1 / row_runs + 1 / (runs or rule.samples))
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

    def is_wide(self, bounds: Bounds) -> bool:
        """Return whether bounds let more loss pass than an ordinary fault causes."""
        return bounds.loss > self.tables.rules.wide.loss

    def ceiling(self, case: Case, metric: str, size: int | None) -> Ceiling | None:
        """Return the tightest theoretical peak of a figure of merit, if any.

        If lower is better, a peak is the minimum. Peaks of the same quantity apply, whichever
        program they are printed for, and those of each link that the bytes cross.
        """
        fom = self.fom(case.benchmark, metric)
        peaks = []
        for name in [(case.benchmark, metric), *self._same(case.benchmark, metric)]:
            peaks += self._best(case, [name], size, "peak")
            for other in self.fom(*name).ceilings:
                peaks += self._best(case, [_parts(other)], None, "peak")
        better = self.rule(fom).better
        found = [Ceiling(self.peak_of(row, fom.unit, better), row.id) for row in peaks]
        found += self._of_links(case, metric, fom.unit)
        # A part of a GPU has no more than the whole; but two parts of one need no link of GPUs.
        whole = {key: text for key, text in case.conditions.items() if key != "gpu_mode"}
        of_pairs = links.applies(("gpu-?", "gpus-on-node"), case.placement)
        if whole != case.conditions and better == "higher" and not of_pairs:
            peak = self.ceiling(dataclasses.replace(case, conditions=whole), metric, size)
            found += [peak] if peak else []
        tightest = max if better == "lower" else min
        return tightest(found, key=lambda peak: (peak.value, peak.row), default=None)

    def peak_of(self, row: Row, unit: str, better: str = "higher") -> float:
        """Return a peak and half of its last printed digit: what is printed as 2.1 may be 2.14."""
        half, _ = self.tables.half_digits(row, unit)
        return row.used(unit)[0] + (-half if better == "lower" else half)

    def _of_links(self, case: Case, metric: str, unit: str) -> Iterator[Ceiling]:
        """Yield the ceiling by each link that a figure crosses."""
        for link, times in self.tables.links.crossed(case, f"{case.benchmark}/{metric}"):
            link_case = dataclasses.replace(
                case,
                placement=link.seen_as.placement or case.placement,
                nodes=link.seen_as.nodes or case.nodes,
                conditions=case.conditions | link.seen_as.conditions,
            )
            for name in link.peaks:
                peak = _parts(name)
                for row in self._best(link_case, [peak], self.fom(*peak).unstated_size, "peak"):
                    all_times = times * self.count(link, row)
                    yield Ceiling(self.peak_of(row, unit) * all_times, row.id, all_times, link.what)

    @staticmethod
    def count(link: Link, row: Row) -> int:
        """Return the number of links of a node in a row of the peak."""
        return int(row.conditions.get(link.count, 1))

    def is_peak_of(self, link: Link, row: Row) -> bool:
        """Return whether a row has the peak of a link."""
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
        """Summarize the samples by the reference's statistic and return the verdict.

        Without bounds, the summary is the median, or the mean of a distribution.
        """
        rule = self.rule(self.fom(case.benchmark, metric))
        bounds = self.bounds(case, metric, size, len(samples))
        peak = self.ceiling(case, metric, size)
        ceiling, ceiling_id = (peak.value, str(peak)) if peak else (None, None)
        value, statistic, verdict = evaluate(samples, rule, bounds, ceiling)
        reason = ""
        if len(samples) < rule.samples and (rows := self._deciding(case, metric, size)):
            reason = (
                f"{rows[0].id} is the {rows[0].statistic} of a distribution: it needs "
                f"{rule.samples} samples, not {len(samples)}"
            )
        judged = Judgement(
            value, statistic, verdict, bounds, ceiling, ceiling_id, reason, rule.better
        )
        if verdict != "pass" or bounds is None:
            return judged
        rules, single = self.tables.rules, self._bounds_of_sample(bounds, case, metric)
        outliers = (
            n for n, sample in enumerate(samples, 1) if single and not single.contains(sample)
        )
        return dataclasses.replace(
            judged,
            near_bound=bounds.near_bound(value, rules.band(rule)),
            suspicious=bounds.too_good(value, rules.suspicious),
            beyond=tuple(outliers),
        )

    def _bounds_of_sample(self, bounds: Bounds, case: Case, metric: str) -> Bounds | None:
        """Return the interval of a single sample: that of the summary, or a wider one of a
        distribution, as one run is farther from the mean than the mean of several."""
        fom = self.fom(case.benchmark, metric)
        if not self.rule(fom).distribution:
            return bounds
        return self.bounds_of(self.tables.rows[bounds.decides], runs=1, fom=fom)


def _parts(name: str) -> tuple[str, str]:
    """Return benchmark and metric of ``benchmark/metric``."""
    benchmark, _, metric = name.partition("/")
    return benchmark, metric


def _settings(conditions: dict[str, str]) -> dict[str, str]:
    """Return the conditions that a baseline and a case have both or neither."""
    return {k: v for k, v in conditions.items() if k == "variant" or k.startswith(SETVAR)}


def evaluate(
    samples: Sequence[float], rule: Tolerance, bounds: Bounds | None, ceiling: float | None
) -> tuple[float, str, str]:
    """Return the summary of samples, its statistic, and its verdict.

    The summary is compared with the bounds, each sample with the ceiling.
    """
    printed = bounds.statistic if bounds else "mean" if rule.distribution else "median"
    value, statistic = summarize(samples, printed, rule), statistic_for(printed, rule)
    lower = rule.better == "lower"
    if ceiling is not None and (min(samples) < ceiling if lower else max(samples) > ceiling):
        return value, statistic, "above-ceiling"
    if bounds is None:
        return value, statistic, "not-asserted"
    return value, statistic, "pass" if bounds.contains(value) else "fail"


def loss_of(value: float, reference: float, better: str) -> float | None:
    """Return how much worse a value is than a reference, relative to that; negative if it is
    better, ``None`` if that is unknown."""
    if better == "neither" or not reference:
        return None
    return (value / reference - 1) * (-1 if better == "higher" else 1)


def format_bound(bound: float) -> str:
    """Return a bound as text."""
    return "open" if math.isinf(bound) else f"{bound:.6g}"


def summarize(samples: Sequence[float], statistic: str, rule: Tolerance) -> float:
    """Return one value for the samples, by :func:`statistic_for`."""
    statistic = statistic_for(statistic, rule)
    if statistic == "best":
        return max(samples) if rule.better == "higher" else min(samples)
    return statistics.fmean(samples) if statistic == "mean" else statistics.median(samples)


def statistic_for(printed: str, rule: Tolerance) -> str:
    """Return the statistic of our samples to compare with a reference's printed statistic.

    It is the median for a single or unstated value, as one outlier does not move the median.
    """
    if printed == "mean" or (printed == "best" and rule.better != "neither"):
        return printed
    return "median"


@functools.cache
def loaded(folder: Folder) -> References:
    """Return the references of a folder, read once.

    :raises Fault: with all faults of all tables, one per line.
    """
    return References(load(folder))
