"""Following units night by night: when each became slow, and when it was well again.

Pure: builds on :mod:`plumbline.analysis.screen.peers`, which judges a single night.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from plumbline.analysis.screen import peers
from plumbline.analysis.screen.peers import LEAST, LEAST_NOISE, MEMORY, RATE, Night, judge

#: Log likelihood ratio from which a slow unit counts as well again.
_WELL = 7.0
#: Most that one night adds to it.
_MOST = 5.0


@dataclass
class SlowSpell:
    """One unit's slow time, in rows.

    :ivar named: the night on which it was named.
    :ivar since: first slow night, as the last night there is tells it.
    :ivar until: last slow night; ``None`` while it lasts; ``ended``: the night that told so.
    :ivar size: loss, as a difference of values.
    :ivar confidence: 1 less the number of such names that chance gives the whole fleet in a night.
    """

    unit: int
    named: int
    since: int
    size: float
    confidence: float
    until: int | None = None
    ended: int | None = None
    expected: float = 0.0
    noise: float = 1.0
    wellness: float = 0.0
    better_from: int = 0
    lost: float = 0.0
    weight: float = 1.0


@dataclass
class Follower:
    """Follows units night by night, from what is known on each.

    :ivar values: nights x units; see :func:`plumbline.analysis.screen.peers.judge` for ``factors``,
        ``kinds``, ``rate``, ``least`` and ``floor``.
    :ivar suspects: row -> units and p-values, worst first.
    :ivar together: row -> share of the units that fell together.
    :ivar begin: first row that later ones are compared with; ``start``: first of those that the
        last night was.
    :ivar judged: number of units and nights that were compared; ``judged_last`` of the last night.
    """

    values: np.ndarray
    factors: np.ndarray
    kinds: np.ndarray
    rate: float = RATE
    least: float = LEAST
    floor: float = LEAST_NOISE
    episodes: list[SlowSpell] = field(default_factory=list)
    suspects: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    together: dict[int, float] = field(default_factory=dict)
    night: Night | None = None
    judged: int = 0
    judged_last: int = 0
    begin: int = 0
    start: int = 0

    def __post_init__(self):
        self.known = np.zeros(self.values.shape, bool)
        self.shift = np.zeros(self.values.shape)

    def step(self, row: int) -> None:
        """Judges one night; nights are judged in order."""
        going = [episode for episode in self.episodes if episode.until is None]
        for episode in going:
            self.known[row, episode.unit] = True
        window = slice(max(self.begin, row - MEMORY + 1), row + 1)
        self.start = window.start
        values = (self.values - self.shift)[window]
        found = judge(
            values,
            self.factors[window],
            self.kinds,
            self.known[window],
            self.rate,
            self.least,
            self.floor,
        )
        self.night = found
        for episode in going:
            self._look_after(episode, row, found.residual[-1, episode.unit])
        if found.together:
            self.together[row] = found.together
        if found.fallen is not None:
            # From now on they are two groups, whose past says nothing of either.
            self.kinds = self.kinds + found.fallen * (self.kinds.max() + 1)
            self.begin = row
        for unit in np.flatnonzero(found.slow):
            self._name(int(unit), row, window.start, found)
        order = np.argsort(found.p, kind="stable")
        self.suspects[row] = [
            (int(unit), float(found.p[unit])) for unit in order if found.suspect[unit]
        ]
        self.judged_last = int(found.judged.sum()) + len(going)
        self.judged += self.judged_last

    def _name(self, unit: int, row: int, start: int, found: Night) -> None:
        since = start + int(found.start[unit])
        chance = found.p[unit] * found.judged.sum()
        episode = SlowSpell(
            unit,
            row,
            since,
            float(found.size[unit]),
            float(1 - min(chance, 1.0)),
            expected=float(found.expected[unit]),
            noise=found.noise,
            better_from=row,
        )
        episode.since = self._start(episode, start, row, found.residual[:, unit])
        slow = found.residual[episode.since - start :, unit]
        weights = np.where(np.isfinite(slow), 1 / self.factors[episode.since : row + 1, unit], 0.0)
        episode.weight = float(weights.sum())
        episode.lost = float((weights * np.nan_to_num(episode.expected - slow)).sum())
        self.episodes.append(episode)
        self.known[episode.since : row + 1, unit] = True

    def _start(self, episode: SlowSpell, start: int, row: int, residual: np.ndarray) -> int:
        """The night from which the slow level explains the values better than the usual one."""
        loss = episode.size
        gain = loss * (episode.expected - loss / 2 - residual)
        gain = np.nan_to_num(gain / self.factors[start : row + 1, episode.unit])
        gain = gain[: episode.named - start + 1]
        return start + int(np.argmax(np.cumsum(gain[::-1])[::-1]))

    def _look_after(self, episode: SlowSpell, row: int, residual: float) -> None:
        """Whether a unit that was named is well again."""
        if np.isnan(residual):
            return
        factor = self.factors[row, episode.unit]
        # Against what it lost on average: what it was named for is often the worst.
        loss = max(episode.lost / episode.weight, self.least)
        # One night does not make it well.
        step = loss * (residual - episode.expected + loss / 2) / (episode.noise**2 * factor)
        episode.lost += (episode.expected - residual) / factor
        episode.weight += 1 / factor
        if episode.wellness <= 0:
            episode.better_from = row
        episode.wellness = max(0.0, episode.wellness + float(np.clip(step, -_MOST, _MOST)))
        if episode.wellness > _WELL:
            episode.until, episode.ended = episode.better_from - 1, row
            self.known[episode.better_from : row + 1, episode.unit] = False

    def look_back(self) -> None:
        """Dates the starts anew, from all that is known now."""
        for episode in self.episodes:
            end = episode.until if episode.until is not None else len(self.values) - 1
            if end <= episode.named:
                continue
            first = max(0, episode.named - MEMORY + 1)
            others = np.where(self.known, np.nan, self.values - self.shift)[first : end + 1]
            weather, _ = peers.weather(others, self.kinds, passes=2)
            residual = (self.values - self.shift)[first : end + 1, episode.unit]
            residual = residual - weather[:, self.kinds[episode.unit]]
            slow = residual[episode.named - first :]
            episode.size = float(episode.expected - np.nanmedian(slow))
            if episode.size > 0:
                episode.since = self._start(episode, first, end, residual)


def above(values: np.ndarray, factors: np.ndarray, parents: np.ndarray, kinds: np.ndarray):
    """Values, factors and kinds of the parents (a node of its GPUs, a switch of its nodes): the
    median of their units above the night's level of their kind, which one slow unit hardly moves.

    :arg parents: number of each unit's parent; -1 without one.
    """
    weather, _ = peers.weather(values, kinds)
    centred = values - weather[:, kinds]
    count = parents.max() + 1
    out = np.full((len(values), count), np.nan)
    out_factors = np.ones((len(values), count))
    of_parents = np.zeros(count, int)
    for parent in range(count):
        mine = np.flatnonzero(parents == parent)
        ordered = np.sort(centred[:, mine], axis=1)
        seen = np.isfinite(ordered).sum(axis=1)
        enough = seen >= max(2, len(mine) / 2)
        rows = np.flatnonzero(enough)
        out[rows, parent] = ordered[rows, seen[rows] // 2]
        out_factors[rows, parent] = peers.MEDIAN * np.median(factors[:, mine]) / seen[rows]
        if not enough.any() or len(mine) < 2:
            out[:, parent] = np.nan
    return out, out_factors, of_parents


def follow(chain: list[Follower], parents: list[np.ndarray]) -> None:
    """Follows several kinds of units together, the largest first (switches, nodes, GPUs): what a
    larger one explains is not blamed on its parts.

    :arg parents: of each Follower but the first, the number of each unit's parent; -1 without.
    """
    settled = [np.zeros(follower.values.shape) for follower in chain]
    for row in range(len(chain[0].values)):
        for depth, follower in enumerate(chain):
            if depth:
                of, parent = parents[depth - 1], chain[depth - 1]
                window = slice(parent.start, row + 1)
                extra = _explained(parent, settled[depth - 1], row) + parent.shift[window]
                follower.shift[window] = np.where(of >= 0, extra[:, of], 0.0)
            follower.step(row)
    for follower in chain:
        follower.look_back()
    for parent, child, of in zip(chain, chain[1:], parents, strict=False):
        _absorb(parent, child, of)


def _explained(parent: Follower, settled: np.ndarray, row: int) -> np.ndarray:
    """What each parent is slower by in each night of the window: while it is named, or may well
    be on the way to it."""
    night = parent.night
    start = parent.start
    for episode in parent.episodes:
        if episode.until is None:
            first = episode.since if episode.named == row else row
            for at in range(max(first, start), row + 1):
                settled[at, episode.unit] = np.nan_to_num(
                    night.residual[at - start, episode.unit] - episode.expected
                )
    shift = settled[start : row + 1].copy()
    for unit in np.flatnonzero(night.judged & ~night.slow & (night.p < peers.SUSPECT_LONG)):
        first = int(night.start[unit])
        shift[first:, unit] = np.nan_to_num(night.residual[first:, unit] - night.expected[unit])
    return shift


def _absorb(parent: Follower, child: Follower, of: np.ndarray) -> None:
    """Ends what was blamed on a part before the whole was named."""
    for whole in parent.episodes:
        for part in child.episodes:
            if of[part.unit] == whole.unit and part.named < whole.named and (
                part.until is None or part.until >= whole.named) and (
                part.since >= whole.since - 1):  # fmt: skip
                part.until = whole.named - 1
