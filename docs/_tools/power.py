"""How often a healthy system fails, and which loss is found, by simulated sessions of each row.

Pure: independent of ReFrame. The samples are random, but are summarized and judged by the code that
judges real ones (:mod:`plumbline.reference.lookup`), with the tables and tolerances in force.

The model of a healthy system
-----------------------------
A session takes some samples one after the other, on one allocation. What a paper prints as spread
is that of single runs, and it does not say whether they were of one job or of many days. So a
sample is the printed value, and an offset that all samples of the session share (other nodes, other
neighbours, the state of the memory), and a noise of its own; each has half of the printed variance
(:data:`SHARE`). With the offset alone, summarizing would gain nothing; without it, a session of
five samples would look surer of itself than it is.

* Value and spread are printed rounded: the true ones lie anywhere within half of the last digit,
  and are drawn from there. Samples are rounded to the last digit that the program prints, and never
  lie beyond a theoretical peak.
* A ``best`` is that of many trials (SC18 prints the best of 1,000): the true value of a usual run
  lies below by what the best of so many normal ones exceeds their mean.
* Where no spread is printed, the noise is the upper quartile of the relative spreads that are
  printed in the class; a class without any takes the bandwidths', since its reason in
  ``tolerance.yaml`` is that it repeats as they do. Most printed spreads of memory and network are
  smaller. It is an assumption all the same, and a shared file system is noisier.
* A distribution (GPCNeT) has no offset: ``network_load_test`` reshuffles its nodes in each run
  (``build_subcomms`` seeds by the clock), so that each is a draw of its own. The paper has only ten
  or twenty: these are drawn too, summarized and rounded as it printed them, and give the bounds.
  Where their median decides, the noise is that of the class without ``distribution-`` in its name.

The noise is normal; heavy-tailed, Student's t with three degrees of freedom; or bootstrapped, drawn
from the residuals of real runs (:func:`residuals`). Each is scaled to the printed spread.

The loss that a session finds
-----------------------------
A loss scales every sample. Beyond tolerance means from the bound on: the true value is the bound
less 10 % of it where higher is better, and plus 25 % of it where lower is better.
"""

from __future__ import annotations

import csv
import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plumbline.core import paths, units
from plumbline.core.formats import markdown_table
from plumbline.reference.lookup import Bounds, References, evaluate, loaded, summarize
from plumbline.reference.registers import MetricEntry, half_digit
from plumbline.reference.row import SITE, Case, Row
from plumbline.reference.tolerance import Tolerance

#: Share of the variance of single runs that all samples of a session have in common.
SHARE = 0.5

#: Expected excess of the best of 1,000 normal values over their mean, in spreads.
BEST_EXCESS = 3.24

#: Samples of a session: the checks' default, and what a distribution is given.
SAMPLES = 5
SAMPLES_OF_DISTRIBUTION = 10

#: Loss beyond tolerance that must be found: of a figure of which more is better, and of others.
BEYOND = {"higher": 0.10, "lower": 0.25}

#: Spread, relative to the value, up to which it must be.
STEADY = 0.05

#: Share of the sessions that must find it.
FOUND = 0.99

#: A draw of a law with mean 0 and standard deviation 1, more being worse.
Law = Callable[[random.Random], float]


def normal(chance: random.Random) -> float:
    """Return normal noise."""
    return chance.gauss(0, 1)


def heavy_tailed(chance: random.Random) -> float:
    """Return noise of Student's t with three degrees of freedom and a standard deviation of 1."""
    # The squares of three normal values: an exponential draw is two of them.
    squares = chance.gauss(0, 1) ** 2 - 2 * math.log(1 - chance.random())
    return chance.gauss(0, 1) / math.sqrt(squares)


def bootstrapped(pool: list[float]) -> Law:
    """Return a law that draws noise from the residuals of real runs."""

    def draw(chance: random.Random) -> float:
        return pool[int(chance.random() * len(pool))]

    return draw


#: Series shorter than this say too little of their spread to be scaled by it.
LEAST_RUNS = 10


def residuals(path: Path) -> list[float]:
    """Return residuals of repeated runs, in standard deviations of their series; larger is worse.

    :arg path: a table with the columns program, metric, unit, run, value.
    """
    series: dict[tuple, list[float]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for fields in csv.DictReader(file):
            key = fields["program"], fields["metric"], fields["unit"]
            series[key].append(float(fields["value"]))
    found = []
    for (_, _, unit), values in series.items():
        spread = statistics.pstdev(values)
        if len(values) < LEAST_RUNS or spread == 0:
            continue
        middle = statistics.fmean(values)
        worse = 1 if _is_time(unit) else -1
        found += [worse * (value - middle) / spread for value in values]
    return found


def _is_time(unit: str) -> bool:
    try:
        return units.factor(unit, "s") > 0
    except units.UnitError:
        return False


@dataclass(frozen=True)
class Asserted:
    """A row that decides a figure of merit, with the data for its simulation.

    :ivar value: in the figure's unit, as are the others.
    :ivar spread: as printed, or assumed if none is printed.
    :ivar half_value: half of the last digit of the printed value.
    :ivar half_spread: half of the last digit of the printed spread, 0 where none is printed.
    :ivar bounds: by the tolerances in force, to which a loss is relative.
    :ivar ceiling: the theoretical peak, if one is known.
    """

    row: Row
    fom: MetricEntry
    rule: Tolerance
    case: Case
    value: float
    spread: float
    half_value: float
    half_spread: float
    bounds: Bounds
    ceiling: float | None

    @property
    def noise(self) -> float:
        """The spread relative to the value."""
        return self.spread / self.value

    @property
    def size(self) -> int | None:
        """The message size of the row."""
        return size_of(self.row, self.fom)

    @property
    def samples(self) -> int:
        """Number of samples of a session."""
        return samples_of(self.rule)

    def shown(self, value: float) -> float:
        """Return a value as the program would print it: possible, positive, rounded."""
        if self.ceiling is not None:
            value = (max if self.rule.better == "lower" else min)(value, self.ceiling)
        if self.fom.resolution:
            return max(rounded(value, self.fom.resolution), self.fom.resolution)
        return max(value, math.ulp(0))


def samples_of(rule: Tolerance) -> int:
    """Return the number of samples of a session for a class."""
    return SAMPLES_OF_DISTRIBUTION if rule.distribution else SAMPLES


def rounded(value: float, digit: float) -> float:
    """Return a value rounded to a digit."""
    return round(value / digit) * digit


@dataclass(frozen=True)
class Outcome:
    """The results of the sessions of a row under one noise.

    :ivar alarms: sessions of the healthy system that failed.
    :ivar found: sessions of a system with a loss beyond tolerance that failed.
    :ivar loss: relative loss that ``FOUND`` of the sessions find.
    """

    sessions: int
    alarms: int
    found: int
    loss: float


def case_of(references: References, row: Row) -> Case:
    """Return the test case of a row."""
    roles = references.tables.conditions
    conditions = {k: v for k, v in row.conditions.items() if roles[k].role == "condition"}
    return Case(
        row.system,
        conditions.pop("partition", ""),
        row.toolchain,
        row.benchmark,
        row.placement,
        row.nodes or 0,
        row.ppn or 0,
        conditions,
    )


def assumed(references: References) -> dict[str, float]:
    """Return class -> relative noise to assume for its rows without a printed spread."""
    seen: dict[str, list[float]] = {name: [] for name in references.tables.rules.classes}
    for row in references.rows:
        if row.kind == "measured" and row.spread is not None and references.may_decide(row):
            fom = references.fom(row.benchmark, row.metric)
            value, spread = row.used(fom.unit)
            seen[fom.tolerance].append(spread / value)
    quartiles = {
        name: statistics.quantiles(spreads)[2] for name, spreads in seen.items() if len(spreads) > 1
    }
    return {
        name: quartiles.get(name.removeprefix("distribution-"), quartiles.get("bandwidth", 0.0))
        for name in seen
    }


def published(references: References) -> References:
    """Return the references without a site's own, on which the simulation must not depend."""
    rows = {name: row for name, row in references.tables.rows.items() if row.source != SITE}
    return References(replace(references.tables, rows=rows))


def asserted(references: References) -> list[Asserted]:
    """Return the rows that decide a figure of merit of their own test case.

    A row is skipped if another one decides in its place.
    """
    found = []
    noise = assumed(references)
    for row in references.rows:
        if row.kind != "measured" or not references.may_decide(row):
            continue
        fom = references.fom(row.benchmark, row.metric)
        rule = references.rule(fom)
        case, size = case_of(references, row), size_of(row, fom)
        bounds = references.bounds(case, row.metric, size, samples_of(rule))
        if bounds is None or bounds.decides != row.id:
            continue
        value, spread = row.used(fom.unit)
        if row.spread is None:
            spread = noise[fom.tolerance] * value
        halves = references.tables.half_digits(row, fom.unit)
        peak = references.ceiling(case, row.metric, size)
        ceiling = peak.value if peak else None
        found.append(Asserted(row, fom, rule, case, value, spread, *halves, bounds, ceiling))
    return found


def size_of(row: Row, fom: MetricEntry) -> int | None:
    """Return the message size of a row."""
    return fom.unstated_size if row.message_size is None else row.message_size


def sessions_of(
    references: References, case: Asserted, law: Law, sessions: int, seed: str
) -> Iterator[tuple[list[float], Bounds | None]]:
    """Return the samples of sessions of a healthy system, each with its bounds.

    :arg references: with the tolerances for the bounds.
    """
    chance = random.Random(f"{seed} {case.row.id}")
    worse = 1 if case.rule.better == "lower" else -1
    printed = references.bounds(case.case, case.row.metric, case.size, case.samples)
    is_redrawn = case.rule.distribution and case.row.statistic == "mean"
    behind = int(case.row.conditions.get("runs", 0)) if is_redrawn else 0
    between = 0.0 if case.rule.distribution else math.sqrt(SHARE)
    within = math.sqrt(1 - between**2)
    usual = BEST_EXCESS if case.row.statistic == "best" else 0.0
    for _ in range(sessions):
        true = case.value + chance.uniform(-case.half_value, case.half_value)
        spread = case.spread + chance.uniform(-case.half_spread, case.half_spread)
        spread = worse * max(0.0, spread)
        offset = usual + (between * law(chance) if between else 0.0)
        runs = [
            case.shown(true + spread * (offset + within * law(chance)))
            for _ in range(case.samples + behind)
        ]
        bounds = printed
        if behind:
            again = _printed_again(references, case, runs[case.samples :])
            bounds = references.bounds_of(again, (), case.samples)
        yield runs[: case.samples], bounds


def _printed_again(references: References, case: Asserted, runs: list[float]) -> Row:
    """Return the row of a distribution if its paper had printed these runs, rounded likewise."""
    if len(runs) < 2:
        return case.row
    factor = units.factor(case.fom.unit, case.row.unit)
    cells = references.tables.printed[case.row.id]
    printed = {"value": statistics.fmean(runs), "spread": statistics.stdev(runs)}
    return case.row.model_copy(
        update={
            column: rounded(number * factor, 2 * half_digit(cells[column]))
            for column, number in printed.items()
        }
    )


def outcome(references: References, case: Asserted, law: Law, sessions: int, seed: str) -> Outcome:
    """Return the results of sessions of a row, healthy and with a loss beyond tolerance.

    :arg references: with the tolerances.
    """
    higher = case.rule.better == "higher"
    bound = case.bounds.lower if higher else case.bounds.upper
    slower = bound * (1 - BEYOND["higher"] if higher else 1 + BEYOND["lower"]) / case.value
    printed = references.bounds(case.case, case.row.metric, case.size, case.samples)
    alarms = found = 0
    losses = []
    for samples, bounds in sessions_of(references, case, law, sessions, seed):
        alarms += evaluate(samples, case.rule, bounds, case.ceiling)[2] in ("fail", "above-ceiling")
        if printed is None:
            losses.append(math.inf)
            continue
        slow = [case.shown(sample * slower) for sample in samples]
        found += evaluate(slow, case.rule, printed, case.ceiling)[2] == "fail"
        value = summarize(samples, printed.statistic, case.rule)
        losses.append(1 - printed.lower / value if higher else printed.upper / value - 1)
    losses.sort()
    return Outcome(sessions, alarms, found, losses[math.ceil(FOUND * sessions) - 1])


def laws(runs: Path) -> dict[str, Law]:
    """Return the noises by name; the bootstrapped one only if the table of real runs exists."""
    found: dict[str, Law] = {"normal": normal, "heavy-tailed": heavy_tailed}
    if runs.exists():
        found["bootstrapped"] = bootstrapped(residuals(runs))
    return found


#: A row with its outcome under each noise.
Simulated = list[tuple[Asserted, dict[str, Outcome]]]


def simulate(references: References, noises: dict[str, Law], sessions: int) -> Simulated:
    """Return the outcomes of all rows that decide, by the present tolerances; reproducibly."""
    return [
        (
            case,
            {name: outcome(references, case, law, sessions, name) for name, law in noises.items()},
        )
        for case in asserted(references)
    ]


def alarms(simulated: Simulated, noise: str) -> float:
    """Return the share of false alarms among the judged figures of merit."""
    outcomes = [by_noise[noise] for _, by_noise in simulated]
    return sum(o.alarms for o in outcomes) / sum(o.sessions for o in outcomes)


def least_found(simulated: Simulated, noise: str) -> float | None:
    """Return the smallest share of sessions that find a loss beyond tolerance, of the steady rows;
    ``None`` without steady rows."""
    steady = [by_noise[noise] for case, by_noise in simulated if case.noise <= STEADY]
    return min((o.found / o.sessions for o in steady), default=None)


#: The page's note on where its numbers come from.
_HEAD = "Rendered by `make docs` from `reference/` and simulated sessions; do not edit."

#: The page's text on the model, wrapped by hand: Markdown does not care.
_ABOUT = """\
How often the [tolerances](tolerances.md) fail a healthy system, and which loss a session finds. For
example, the first table has, for each class of figures, the false alarms in 1,000 sessions.

Each published row that decides a figure of merit is measured again in {sessions} simulated
sessions of a healthy system, and judged by the code that judges real ones. A session has
{samples} samples, for a distribution (GPCNeT) {of_distribution}. Half of the printed variance is
that of the samples; the other half is an offset that all samples of a session share. Each run of a
distribution is drawn independently, and so are the runs behind its printed mean and spread. What is
printed is rounded, and the best value of a paper is that of 1,000 trials. The reasons are in
`docs/_tools/power.py`.

The noise is normal; heavy-tailed (Student's t, three degrees of freedom); or bootstrapped from the
residuals of real runs (`tests/captures/noise.csv`). Each is scaled to the printed spread. If
none is printed it is assumed to be the upper quartile of the relative spreads that are printed in
the class, or in that of bandwidths if it has none. A shared file system is noisier than that:
compare it with a site baseline.

A false alarm is a healthy session in which the figure fails. A loss beyond tolerance is a true
value {higher} below the bound of a bandwidth or rate, or {lower} above that of a latency or time.
The share of the sessions that find it is that of the class's worst row with a spread of at most
{steady}, under the noise that hides it best. The loss found is what {found} of the sessions find,
relative to the reference, under normal noise; the range is over the rows."""


def render(references: References, simulated: Simulated) -> str:
    """Return the page on false alarms and power."""
    noises = list(simulated[0][1])
    sessions = simulated[0][1][noises[0]].sessions
    about = _ABOUT.format(
        sessions=f"{sessions:,}",
        samples=SAMPLES,
        of_distribution=SAMPLES_OF_DISTRIBUTION,
        higher=_percent(BEYOND["higher"]),
        lower=_percent(BEYOND["lower"]),
        steady=_percent(STEADY),
        found=_percent(FOUND),
    )
    lines = ["# False alarms and power", "", _HEAD, "", about, "", "## By class", ""]
    of_alarms = [f"alarms in 1,000, {noise}" for noise in noises]
    noise_of = assumed(references)
    cells = []
    for name, group in _grouped(simulated, _class_of):
        rule = references.tables.rules.classes[name]
        unprinted = any(case.row.spread is None for case, _ in group)
        found = [share for n in noises if (share := least_found(group, n)) is not None]
        cells.append([
            *(name, _percent(rule.floor), f"{rule.spreads:g}"),
            _percent(noise_of[name], 1) if unprinted else "—",
            len(group),
            *_alarms(group, noises),
            # Rounded down: 100 % means all.
            _percent(math.floor(1000 * min(found)) / 1000, 1) if found else "—",
        ])  # fmt: skip
    numbers = ["floor", "spreads", "assumed noise", "rows", *of_alarms,
               "loss beyond tolerance found"]  # fmt: skip
    lines += [markdown_table(["class", *numbers], cells, numbers), "", "## By figure of merit", ""]
    cells = []
    for name, group in _grouped(simulated, _figure_of):
        losses = sorted(by_noise["normal"].loss for _, by_noise in group)
        ends = dict.fromkeys(_percent(loss, 1) for loss in (losses[0], losses[-1]))
        cells.append([*name, len(group), *_alarms(group, noises), " to ".join(ends)])
    numbers = ["rows", *of_alarms, "loss found"]
    lines.append(markdown_table(["benchmark", "metric", "class", *numbers], cells, numbers))
    lines += ["", f"## Rows with a spread above {_percent(STEADY)}", ""]
    cells = []
    for case, by_noise in simulated:
        if case.noise > STEADY:
            bound = case.bounds.lower if case.rule.better == "higher" else case.bounds.upper
            shares = [case.noise, abs(bound / case.value - 1)]
            shares += [by_noise[noise].loss for noise in noises]
            cells.append([f"`{case.row.id}`", *map(_percent, shares)])
    numbers = ["spread", "tolerance", *(f"loss found, {n}" for n in noises)]
    return "\n".join([*lines, markdown_table(["row", *numbers], cells, numbers), ""])


def _class_of(case: Asserted) -> str:
    return case.fom.tolerance


def _figure_of(case: Asserted) -> tuple[str, str, str]:
    return case.row.benchmark, case.row.metric, case.fom.tolerance


def _alarms(simulated: Simulated, noises: list[str]) -> list[str]:
    return [f"{1000 * alarms(simulated, noise):.2f}" for noise in noises]


def _grouped(simulated: Simulated, key: Callable[[Asserted], object]) -> list[tuple]:
    groups: dict[object, Simulated] = defaultdict(list)
    for case, by_noise in simulated:
        groups[key(case)].append((case, by_noise))
    return sorted(groups.items())


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


#: Real runs of programs, whose noise is bootstrapped.
RUNS = paths.ROOT / "tests" / "captures" / "noise.csv"

#: Sessions of each row that the page is rendered from.
SESSIONS = 1000


if __name__ == "__main__":
    tables = published(loaded(paths.ROOT / "reference"))
    page = render(tables, simulate(tables, laws(RUNS), SESSIONS))
    Path(sys.argv[1]).write_text(page, encoding="utf-8")
