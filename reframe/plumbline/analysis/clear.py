"""Whether a node that comes back is as fast as it was, and as its peers are: go, no-go, or not
enough data.

Each figure of the node, measured now, is compared with what is expected of it, twice:

* **own**: the present level of its peers, plus the node's usual distance from them in its earlier
  nights, without those on which ``plumbline screen`` flags it;
* **peers**: the present level of its peers, from whom healthy nodes differ by their usual spread.

Each is a t-test on a prediction error. Its variance is the sum of four parts: the noise of the
values now, the night's common-mode variation (0 if the peers were measured in the same night), the
error of the expected level, and, against the peers, their spread. Degrees of freedom are
Satterthwaite's. The tests of a node, one or two a figure, share one rate of false alarms (Holm).
Differences are of logarithms, so relative; negative is slower.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from plumbline.analysis import screen
from plumbline.analysis.screen import detection
from plumbline.analysis.screen.input import NIGHT_HOURS, Group, natural, of_series
from plumbline.analysis.stats import MAD_TO_STD
from plumbline.core.errors import Fault
from plumbline.core.text import pluralize
from plumbline.history.history import History
from plumbline.history.series import Selection, Series

#: Overall verdict -> exit code.
EXIT = {"go": 0, "no-go": 1, "not enough data": 2}
#: Verdicts of a figure, the worst first.
ORDER = ("regressed", "too little data", "unchanged")

#: Stands for the sessions that are judged; sorts after the names of all other sessions, and has no
#: time, so that it is a night of its own (:func:`plumbline.analysis.screen.nights`).
NOW = "~now"
#: Fewest earlier nights that make a usual level of the node.
NIGHTS = 3
#: Most peers that are used: the error of the median of 100 is an eighth of the noise of one value.
PEERS = 100
#: P-value below which the node's own noise is larger than its peers', and is used instead.
NOISIER = 0.05
#: Differences between nights are clipped at this many robust standard deviations: heavy tails widen
#: the noise, and a node that fell does so no more than they do.
CLIP = 6.0
#: Degrees of freedom of a standard deviation by MAD, per value; of successive differences, which
#: share values, two thirds count.
_MAD_DF = 0.37
_SUCCESSIVE = 2 / 3


@dataclass(frozen=True)
class ClearRules:
    """What is a loss, and what a ``go`` needs.

    :ivar rate: probability that some figure of a healthy node is a no-go: half of the 1 % that is
        the aim, since noise with heavy tails doubles it (docs/clearing-power.md).
    :ivar least: relative loss below which nothing is a no-go.
    :ivar margin: relative loss that must be excluded, with ``confidence``, for a go.
    :ivar days: age up to which a night of the peers is used for their present level.
    :ivar allow_inconclusive: share of the figures that may have too little data in a go.
    """

    rate: float = 0.005
    least: float = detection.LEAST
    margin: float = 0.05
    confidence: float = 0.95
    days: float = 14
    allow_inconclusive: float = 0.0


@dataclass
class Expected:
    """The comparison of a figure with one expectation; logarithms.

    :ivar level: of the expectation. :ivar count: nights or peers behind it.
    :ivar difference: of the values now. :ivar error: its standard error if the node is healthy.
    :ivar sharp: its standard error for an excluded loss; without the spread of the peers.
    :ivar df: degrees of freedom.
    """

    level: float
    count: int
    difference: float
    error: float
    sharp: float
    df: float

    @property
    def p(self) -> float:
        """One-sided p-value of a loss."""
        return float(stats.t.cdf(self.difference / self.error, self.df))

    def low(self, confidence: float) -> float:
        """Return the one-sided lower bound of the difference."""
        return self.difference - float(stats.t.ppf(confidence, self.df)) * self.sharp


@dataclass
class ClearedFigure:
    """One figure of the node. Numbers that are not known are NaN.

    :ivar unit: the node, or node and GPU. :ivar measure: unit of measurement.
    :ivar now: level of the values now, in that unit. :ivar values: how many there are.
    :ivar usual: what the node usually has, at the present level of its peers; from ``nights``.
    :ivar peers: the peers' present level; from ``number`` of them.
    :ivar difference: from usual, or without that from the peers; relative, positive is better.
    :ivar low, high: its 90 % interval, so that ``low`` is the one-sided 95 % bound.
    :ivar adjusted: p-value of a loss, by Holm, the smaller of both comparisons.
    """

    label: str
    unit: tuple[str, ...]
    better: str
    measure: str
    values: int
    now: float
    usual: float = math.nan
    nights: int = 0
    peers: float = math.nan
    number: int = 0
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    adjusted: float = math.nan
    verdict: str = "too little data"
    reason: str = ""


@dataclass
class Clearance:
    """The verdict on a node, for ``reasons``."""

    node: str
    verdict: str
    reasons: list[str]
    rows: list[ClearedFigure]
    sessions: list[str]

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]


@dataclass
class NodeFigure:
    """The values of one figure for the judgement of one unit; signed logarithms, more is better.

    :ivar values: nights x units; the unit itself is the first column. :ivar factors: the variance
        of each over that of a single value.
    :ivar recent: nights of which the peers' level is the present one.
    :ivar tonight: row of the night of ``now``, if its peers were measured then; else -1.
    :ivar now: the values that are judged.
    :ivar floor: smallest noise.
    :ivar inside: sum of squares and degrees of freedom of repeats about their mean.
    :ivar family: figures of one family are not independent.
    """

    values: np.ndarray
    factors: np.ndarray
    recent: np.ndarray
    tonight: int
    now: np.ndarray
    floor: float = detection.LEAST_NOISE
    inside: tuple[float, int] = (0.0, 0)
    family: str = ""


@dataclass
class Fleet:
    """What the peers of a figure show.

    :ivar own: the unit's values relative to its peers, and their variance factors.
    :ivar noise: variance of a single value. :ivar spread: variance of the peers' levels.
    :ivar level: their present level, of which ``shift`` is the variance of its error.
    :ivar *_df: degrees of freedom.
    """

    number: int
    own: np.ndarray
    own_factors: np.ndarray
    noise: float
    noise_df: float
    spread: float
    level: float
    shift: float
    shift_df: float


def judge(
    figures: list[NodeFigure], fleets: list[Fleet | None] | None = None
) -> list[tuple[Expected | None, Expected | None]]:
    """Return the comparisons of each figure: with the unit's own nights, and with its peers.

    :arg fleets: what the peers of each show, if :func:`fleet_of` was called already.
    """
    fleets = fleets or [fleet_of(figure) for figure in figures]
    common = _common_part(figures, fleets)
    return [_expectations(f, fleet, common) for f, fleet in zip(figures, fleets, strict=True)]


def fleet_of(figure: NodeFigure) -> Fleet | None:
    """Return what the peers show; ``None`` if they are too few, or their level now is unknown."""
    peers = figure.values[:, 1:]
    if not peers.size:
        return None
    kinds = np.zeros(peers.shape[1], int)
    common, count = detection.common_mode(peers, kinds, passes=2)
    level, enough = common[:, 0], count[:, 0] >= detection.FEWEST
    residual = np.where(enough[:, None], peers - level[:, None], np.nan)
    faster = _kind(figure, residual, level, enough)
    if faster is not None:
        rest = figure.values[:, [True, *faster]], figure.factors[:, [True, *faster]]
        return fleet_of(replace(figure, values=rest[0], factors=rest[1]))
    noise, df = _noise(residual, figure.factors[:, 1:], figure.floor)
    spread = _spread(residual, figure.factors[:, 1:], noise)
    number = int(np.isfinite(residual[figure.recent | (np.arange(len(level)) == figure.tonight)])
                 .any(axis=0).sum())  # fmt: skip
    error = detection.MEDIAN * noise * float(np.median(figure.factors))
    if figure.tonight >= 0 and enough[figure.tonight]:
        # Each peer's own level is uncertain too.
        usual = 1 + 1 / max(int(enough.sum()) - 1, 1)
        shift = error * usual / count[figure.tonight, 0]
        present, shift_df = level[figure.tonight], df
    else:
        steps = np.diff(level[enough])
        recent = level[figure.recent & enough]
        if not len(recent) or len(steps) < 2:
            return None
        present = float(np.mean(recent))
        # Of sweeps of a part of the nodes each night, the levels of other peers are in it.
        error = (error + detection.MEDIAN * spread) / max(number, 1)
        shift = float(np.mean(steps**2) / 2) * (1 + 1 / len(recent)) + error
        shift_df = _SUCCESSIVE * len(steps)
    own = np.where(enough, figure.values[:, 0] - level, np.nan)
    return Fleet(
        number, own, figure.factors[:, 0], noise, df, spread, float(present), shift, shift_df
    )


def _kind(
    figure: NodeFigure, residual: np.ndarray, level: np.ndarray, enough: np.ndarray
) -> np.ndarray | None:
    """Return which peers are of the unit's own kind of hardware, if there are two kinds and its
    own nights show which it is."""
    levels = detection.median(residual, axis=0)
    slower = detection.two_groups(levels)
    own = np.where(enough, figure.values[:, 0] - level, np.nan)
    if slower is None or not np.isfinite(own).any():
        return None
    centres = [float(np.nanmedian(levels[kind])) for kind in (slower, ~slower)]
    mine = float(np.nanmedian(own))
    return slower if abs(mine - centres[0]) < abs(mine - centres[1]) else ~slower


def _noise(residual: np.ndarray, factors: np.ndarray, floor: float) -> tuple[float, float]:
    """Return the variance of a single value and its degrees of freedom: from the differences of
    each peer's successive values, or, if each has one, from the spread of all."""
    known = np.isfinite(residual.T)
    of, _ = np.nonzero(known)
    values, factor = residual.T[known], factors.T[known]
    same = of[1:] == of[:-1]
    found = (np.diff(values) / np.sqrt(factor[1:] + factor[:-1]))[same]
    worth = _SUCCESSIVE
    if len(found) < detection.FEWEST:
        found, worth = values / np.sqrt(factor), 1.0
    if not len(found):
        return floor**2, 1.0
    reach = CLIP * max(MAD_TO_STD * float(np.median(np.abs(found))), floor)
    scale = math.sqrt(float(np.mean(np.clip(found, -reach, reach) ** 2)))
    return max(scale, floor) ** 2, max(worth * len(found), 1.0)


def _spread(residual: np.ndarray, factors: np.ndarray, noise: float) -> float:
    """Return the variance of the peers' levels, without the noise in their means."""
    weights = np.where(np.isfinite(residual), 1 / factors, 0.0)
    weight = weights.sum(axis=0)
    known = weight > 0
    means = (weights * np.nan_to_num(residual)).sum(axis=0)[known] / weight[known]
    wide = MAD_TO_STD * float(np.median(np.abs(means - np.median(means)))) if known.any() else 0.0
    return max(wide**2 - noise * float(np.median(1 / weight[known])), 0.0) if known.any() else 0.0


def _common_part(figures: list[NodeFigure], fleets: list[Fleet | None]) -> float:
    """Return the share of a value's variance that repeats in one job have in common.

    The variance within repeats is compared with that between nights, over all figures; one
    standard error is added, so that few repeats do not pass for independent ones. Figures of one
    family count once.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    degrees: dict[str, int] = defaultdict(int)
    for figure, fleet in zip(figures, fleets, strict=True):
        if fleet is not None and figure.inside[1]:
            squares, df = figure.inside
            ratios[figure.family].append(squares / df / fleet.noise)
            degrees[figure.family] = max(degrees[figure.family], df)
    if not ratios:
        return 1.0
    total = sum(degrees.values())
    share = sum(degrees[name] * float(np.mean(found)) for name, found in ratios.items()) / total
    return float(np.clip(1 - share * (1 - math.sqrt(2 / total)), 0, 1)) if total > 2 else 1.0


def _expectations(
    figure: NodeFigure, fleet: Fleet | None, common: float
) -> tuple[Expected | None, Expected | None]:
    count = len(figure.now)
    if fleet is None:
        return _alone(figure), None
    now = float(detection.middle(figure.now[None], math.sqrt(fleet.noise))[0])
    factor = common + (1 - common) / count
    distance = now - fleet.level
    error = fleet.noise * factor
    parts = [(error, fleet.noise_df), (fleet.shift, fleet.shift_df)]
    of_peers = (fleet.spread, _MAD_DF * fleet.number)
    peers = _expected(fleet.level, fleet.number, distance, [*parts, of_peers], fleet.spread)
    known = np.isfinite(fleet.own)
    if known.sum() < NIGHTS:
        return None, peers
    weights = 1 / fleet.own_factors[known]
    middle = float(np.median(fleet.own[known]))
    reach = 2.5 * np.sqrt(fleet.noise / weights)
    values = np.clip(fleet.own[known], middle - reach, middle + reach)
    usual = float(np.sum(weights * values) / weights.sum())
    noise, df = fleet.noise, fleet.noise_df
    squares, nights = float(np.sum(weights * (values - usual) ** 2)), int(known.sum())
    if stats.chi2.sf(squares / noise, nights - 1) < NOISIER:
        noise, df = squares / (nights - 1), nights - 1
    parts = [(noise * (factor + 1 / weights.sum()), df), (fleet.shift, fleet.shift_df)]
    return _expected(fleet.level + usual, nights, distance - usual, parts), peers


def _alone(figure: NodeFigure) -> Expected | None:
    """Return the comparison with the unit's own nights without any peers: a prediction interval
    from their variance, which contains the common-mode variation."""
    own = figure.values[:, 0]
    own = own[np.isfinite(own)]
    if len(own) < NIGHTS:
        return None
    middle = float(np.median(own))
    now = float(detection.middle(figure.now[None], None)[0])
    variance = max(float(np.var(own, ddof=1)), figure.floor**2) * (1 + 1 / len(own))
    return _expected(middle, len(own), now - middle, [(variance, len(own) - 1)])


def _expected(
    level: float,
    count: int,
    difference: float,
    parts: list[tuple[float, float]],
    spread: float = 0.0,
) -> Expected:
    """Return a comparison whose error has these variances, each with its degrees of freedom."""
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / freedom for part, freedom in parts if part > 0)
    sharp = math.sqrt(max(variance - spread, 1e-12))
    return Expected(level, count, difference, math.sqrt(variance), sharp, df)


def holm(p: np.ndarray) -> np.ndarray:
    """Correct p-values for their number (Holm)."""
    order = np.argsort(p)
    scaled = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(scaled, 1.0)
    return found


def verdicts(
    compared: list[tuple[Expected | None, Expected | None]],
    better: list[str],
    rules: ClearRules | None = None,
) -> tuple[list[str], list[float]]:
    """Return each figure's verdict and its corrected p-value (NaN if nothing could be compared).

    * ``regressed`` if it is slower than either expectation, significantly and by
      :attr:`ClearRules.least` at least;
    * else ``unchanged`` if a loss of :attr:`ClearRules.margin` is excluded, compared with its own
      nights, or with its peers if these are too few;
    * else ``too little data``.
    """
    rules = rules or ClearRules()
    tests = [(n, one) for n, pair in enumerate(compared) for one in pair if one is not None]
    adjusted = holm(np.array([one.p for _, one in tests])) if tests else np.zeros(0)
    found, smallest = ["too little data"] * len(compared), [math.nan] * len(compared)
    for n, pair in enumerate(compared):
        decides = pair[0] or pair[1]
        excluded = decides is not None and decides.low(rules.confidence) > -_log(
            rules.margin, better[n])  # fmt: skip
        found[n] = "unchanged" if excluded else "too little data"
    for (n, one), p in zip(tests, adjusted.tolist(), strict=True):
        smallest[n] = min(p, smallest[n]) if smallest[n] == smallest[n] else p
        if p <= rules.rate and one.difference <= -_log(rules.least, better[n]):
            found[n] = "regressed"
    return found, smallest


def _log(loss: float, better: str) -> float:
    """Return a relative loss as a positive difference of logarithms."""
    return math.log1p(loss) if better == "lower" else -math.log1p(-loss)


# -- from the history -------------------------------------------------------------------------


def clear_node(
    history: History,
    node: str,
    sessions: Collection[str],
    select: Selection,
    before: str = "",
    aside: Collection[str] = (),
    rules: ClearRules | None = None,
) -> Clearance:
    """Judge a node by sessions of the history.

    :arg sessions: those in which it was measured now, one at least.
    :arg aside: nodes that are no peers, as they are judged too: they may be slow alike.
    :arg before: name of a session, or the beginning of one; the node's own nights are those before
        it. By default all on which screening does not flag it.
    """
    rules = rules or ClearRules()
    wanted = set(sessions)
    found = history.series(select, samples=False)
    measured = {(s.key.system, s.key.partition, s.key.environment, s.key.check)
                for s in found if _of_node(s, node, wanted).any()}  # fmt: skip
    found = [s for s in found if (s.key.system, s.key.partition, s.key.environment, s.key.check)
             in measured]  # fmt: skip
    first = min(wanted)
    marked = _marked(found, node, wanted)
    groups = of_series(marked)
    tonight = _night_of(marked, first)
    cutoff = _days_before(first, rules.days)
    groups = [_few(group, node, {*aside} - {node}) for group in groups]
    slow = _slow_nights(groups, node)
    rows, figures = [], []
    for group in groups:
        for unit in sorted({u for night, u in group.values if night == NOW and u[0] == node}):
            figures.append(_figure(group, unit, tonight, cutoff, slow, before))
            rows.append(_row(group, unit, figures[-1]))
    compared = judge(figures)
    names, adjusted = verdicts(compared, [row.better for row in rows], rules)
    for row, pair, name, p in zip(rows, compared, names, adjusted, strict=True):
        _fill(row, pair, name, p, rules)
    rows.sort(key=lambda row: (ORDER.index(row.verdict), row.difference, row.label, row.unit))
    ended = Counter(
        case.result
        for case in history.cases(Selection(sessions=tuple(wanted)))
        if node in case.nodes or case.node == node
    )
    verdict, reasons = _verdict(rows, ended, rules)
    return Clearance(node, verdict, reasons, rows, sorted(wanted))


def _of_node(series: Series, node: str, sessions: Collection[str]) -> np.ndarray:
    """Return which values are of the node alone, in these sessions."""
    alone = np.asarray(series.nodes == node) | (series.key.node == node)
    return np.asarray(alone & np.isin(series.sessions.astype(str), [*sessions]))


def _marked(found: Iterable[Series], node: str, sessions: Collection[str]) -> list[Series]:
    """Return series in which the node's values of these sessions are of :data:`NOW`."""
    marked = []
    for series in found:
        now = _of_node(series, node, sessions)
        names = np.where(now, NOW, series.sessions.astype(object))
        marked.append(replace(series, sessions=names))
    return marked


def _night_of(marked: Iterable[Series], first: str) -> str:
    """Return the night of the peers that is nearest to a session, if it is the same night."""
    names = {name for series in marked if series.better != "neither"
             for name in series.sessions.tolist()}  # fmt: skip
    start = _start(first)
    away = {name: abs(_start(name) - start) for name in names - {NOW}}
    nearest = min(away, key=lambda name: (away[name], name), default="")
    if not nearest or away[nearest] > datetime.timedelta(hours=NIGHT_HOURS):
        return ""
    return screen.nights(names)[nearest]


def _start(session: str) -> datetime.datetime:
    return datetime.datetime.strptime(session[:15], "%Y%m%dT%H%M%S")


def _days_before(session: str, days: float) -> str:
    """Return the earliest name of a session at most so many days before one."""
    return f"{_start(session) - datetime.timedelta(days=days):%Y%m%dT%H%M%S}"


def _few(group: Group, node: str, aside: Collection[str]) -> Group:
    """Return a group with the node and :data:`PEERS` others: those measured on most of the node's
    nights, and those measured last. In sweeps of a part of the nodes each day these differ."""
    own = {night for night, unit in group.values if unit[0] == node}
    last: dict[str, str] = {}
    shared: Counter[str] = Counter()
    for night, (name, *_) in group.values:
        last[name] = max(night, last.get(name, ""))
        shared[name] += night in own
    ordered = sorted(last.keys() - {node, *aside}, key=natural)
    kept = {node, *sorted(ordered, key=lambda name: -shared[name])[: PEERS // 2]}
    for name in sorted(ordered, key=lambda name: last[name], reverse=True):
        if len(kept) > PEERS:
            break
        kept.add(name)
    values = {key: rows for key, rows in group.values.items() if key[1][0] in kept}
    return replace(group, values=values, pairs={})


def _slow_nights(groups: list[Group], node: str) -> tuple[str, str]:
    """Return the first and the last night of the node's last slow spell, a pair that no night is
    within if there is none."""
    earlier = [
        replace(group, values={k: rows for k, rows in group.values.items() if k[0] != NOW})
        for group in groups
    ]
    flags = [flag for flag in screen.screen(earlier).flagged
             if flag.drained or flag.until is not None if flag.name[0] == node
             and flag.kind in ("node", "gpu")]  # fmt: skip
    if not flags:
        return NOW, ""
    last = max(flags, key=lambda flag: flag.since)
    return last.since, last.until or NOW


def _figure(
    group: Group,
    unit: tuple[str, ...],
    tonight: str,
    cutoff: str,
    slow: tuple[str, str],
    before: str,
) -> NodeFigure:
    sign = -1.0 if group.better == "lower" else 1.0
    now = sign * np.log(group.values[NOW, unit])
    place = unit[1:]
    units = [unit, *sorted({u for _, u in group.values if u[1:] == place and u != unit})]
    ordered = sorted({night for night, _ in group.values if night != NOW})
    row, column = ({name: n for n, name in enumerate(names)} for names in (ordered, units))
    cells: dict[tuple[int, int], list[float]] = {}
    for (night, of), listed in group.values.items():
        if night == NOW or of not in column:
            continue
        if of == unit and (slow[0] <= night <= slow[1] or night >= (before or NOW)):
            continue
        cells[row[night], column[of]] = [sign * math.log(value) for value in listed]
    values, factors = detection.repeats(cells, len(ordered), len(units))
    squares, df = float(np.sum((now - now.mean()) ** 2)), len(now) - 1
    for listed in cells.values():
        # The first of several values may be what caused the repeats.
        logs = np.array(listed[1:])
        if len(logs) > 1:
            squares, df = squares + float(np.sum((logs - logs.mean()) ** 2)), df + len(logs) - 1
    return NodeFigure(
        values,
        factors,
        np.array([night[:15] >= cutoff for night in ordered], bool),
        row.get(tonight, -1),
        now,
        detection.floor_of([value for listed in group.values.values() for value in listed]),
        (squares, df),
        " ".join(group.label.split()[:2]),
    )


def _row(group: Group, unit: tuple[str, ...], figure: NodeFigure) -> ClearedFigure:
    sign = -1.0 if group.better == "lower" else 1.0
    level = float(np.exp(sign * np.median(figure.now)))
    return ClearedFigure(group.label, unit, group.better, group.unit, len(figure.now), level)


def _fill(
    row: ClearedFigure,
    pair: tuple[Expected | None, Expected | None],
    verdict: str,
    adjusted: float,
    rules: ClearRules,
) -> None:
    sign = -1.0 if row.better == "lower" else 1.0
    row.verdict, row.adjusted = verdict, adjusted
    own, peers = pair
    if own is not None:
        row.usual, row.nights = math.exp(sign * own.level), own.count
    if peers is not None:
        row.peers, row.number = math.exp(sign * peers.level), peers.count
    decides = own or peers
    if decides is None:
        row.reason = "neither earlier nights of the node nor enough peers to compare with"
        return
    half = float(stats.t.ppf(rules.confidence, decides.df)) * decides.sharp
    row.difference, row.low, row.high = (
        math.expm1(decides.difference + step) for step in (0.0, -half, half)
    )
    if verdict == "too little data":
        row.reason = f"a loss of {100 * rules.margin:g} % can neither be shown nor excluded"
    elif verdict == "regressed":
        slower = [
            f"{-math.expm1(one.difference):.1%} slower than {what}"
            for what, one in (("usual", own), ("its peers", peers))
            if one is not None and one.difference <= -_log(rules.least, row.better)
        ]
        row.reason = "; ".join(slower)


def short_name(row: ClearedFigure, width: int) -> str:
    """Return the name of a figure without the place, shortened in its middle."""
    name = " ".join([*row.label.split()[1:], *row.unit[1:]])
    half = (width - 3) // 2
    return name if len(name) <= width else f"{name[:half]}...{name[-half:]}"


def _verdict(
    rows: list[ClearedFigure], ended: Counter[str], rules: ClearRules
) -> tuple[str, list[str]]:
    """Return the verdict on the node, and the reasons for it."""
    counts, total = Counter(row.verdict for row in rows), len(rows)
    reasons = [f"{row.label}: {row.reason}" for row in rows if row.verdict == "regressed"][:1]
    if counts["regressed"]:
        reasons.insert(0, f"{counts['regressed']} of {total} figures regressed")
    if ended["fail"]:
        reasons.append(f"{pluralize(ended['fail'], 'test case')} failed")
    if counts["regressed"] or ended["fail"]:
        return "no-go", reasons
    few = counts["too little data"]
    if few:
        reasons.append(f"{few} of {total} figures have too little data")
    broken = ended["error"] + ended["invalid"]
    if broken:
        reasons.append(f"{pluralize(broken, 'test case')} without a valid result")
    if not total:
        return "not enough data", reasons or ["no figure of the node was measured"]
    if broken or few > rules.allow_inconclusive * total or few == total:
        return "not enough data", reasons
    return "go", [f"no loss in {counts['unchanged']} of {total} figures", *reasons]


def latest(history: History, node: str, select: Selection) -> list[str]:
    """Return the sessions of the last night in which a node was measured by itself.

    :raises Fault: if it never was.
    """
    cases = history.cases(select)
    names = {case.session for case in cases if (case.nodes == [node] or case.node == node)
             and case.result in ("pass", "fail", "waived")}  # fmt: skip
    if not names:
        raise Fault(
            f"node {node} was never measured by itself: measure it with `plumbline clear {node}`",
            code="history.unknown-node",
        )
    night_of = screen.nights(names)
    last = max(night_of.values())
    return sorted(name for name in names if night_of[name] == last)
