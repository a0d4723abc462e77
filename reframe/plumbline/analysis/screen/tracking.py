"""Tracks units night by night: when each became slow, and when it recovered.

Pure: builds on :mod:`plumbline.analysis.screen.detection`, which judges a single night.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from plumbline.analysis.screen import detection
from plumbline.analysis.screen.detection import LEAST, MEMORY, FigureTable, Night, judge

#: Log likelihood ratio from which a slow unit has recovered.
_RECOVERED = 7.0
#: Most that one night contributes to it.
_MOST_OF_NIGHT = 5.0
#: A loss has grown if each of so many last nights shows it: one or two may be outliers.
_GROWN = 3


@dataclass
class SlowSpell:
    """One unit's slow time, in rows.

    :ivar flagged: the night on which it was flagged.
    :ivar since: first slow night, from all nights.
    :ivar until: last slow night; ``None`` while it lasts. :ivar ended: the night that showed this.
    :ivar size: loss, as a difference of values.
    :ivar confidence: 1 less the number of such flags by chance in the whole fleet and night.
    :ivar evidence: log likelihood ratio for its recovery, which began on ``better_from``.
    :ivar lost: weighted sum of its losses, and ``weight`` the sum of the weights.
    """

    unit: int
    flagged: int
    since: int
    size: float
    confidence: float
    until: int | None = None
    ended: int | None = None
    expected: float = 0.0
    noise: float = 1.0
    evidence: float = 0.0
    better_from: int = 0
    lost: float = 0.0
    weight: float = 1.0


@dataclass
class Tracker:
    """Tracks units night by night, from what is known on each.

    :ivar rate: accepted rate of false alarms, per unit and night.
    :ivar suspects: row -> units and p-values, worst first.
    :ivar together: row -> share of the units that fell together, or, if it is in ``always``, that
        were so slow on all nights before too.
    :ivar begin: first row that later ones are compared with. :ivar start: first row that the last
        night was compared with.
    :ivar judged: number of units and nights that were compared. :ivar judged_last: of the last
        night.
    """

    table: FigureTable
    rate: float
    spells: list[SlowSpell] = field(default_factory=list)
    suspects: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    together: dict[int, float] = field(default_factory=dict)
    always: set[int] = field(default_factory=set)
    judged: int = 0
    judged_last: int = 0
    begin: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        self.known = np.zeros(self.table.values.shape, bool)
        self.shift = np.zeros(self.table.values.shape)

    def unexplained(self, nights: slice) -> FigureTable:
        """Return some nights' values without what larger units explain."""
        table = self.table.of(nights)
        return replace(table, values=table.values - self.shift[nights])

    def step(self, row: int) -> Night:
        """Judge one night; nights are judged in order."""
        active = [spell for spell in self.spells if spell.until is None]
        for spell in active:
            self.known[row, spell.unit] = True
        window = slice(max(self.begin, row - MEMORY + 1), row + 1)
        self.start = window.start
        found = judge(self.unexplained(window), self.known[window], self.rate)
        for spell in active:
            self._update(spell, row, found.residual[-1, spell.unit])
        if found.together:
            self.together[row] = found.together
            self.always |= {row} if found.always else set()
        if found.fallen is not None:
            # From now on they are two groups; their common past is no reference for either.
            kinds = self.table.kinds
            self.table = replace(self.table, kinds=kinds + found.fallen * (kinds.max() + 1))
            self.begin = row
        for unit in np.flatnonzero(found.slow):
            self._flag(int(unit), row, window.start, found)
        order = np.argsort(found.p, kind="stable")
        self.suspects[row] = [
            (int(unit), float(found.p[unit])) for unit in order if found.suspect[unit]
        ]
        self.judged_last = int(found.judged.sum()) + len(active)
        self.judged += self.judged_last
        return found

    def _flag(self, unit: int, row: int, start: int, found: Night) -> None:
        chance = found.p[unit] * found.judged.sum()
        spell = SlowSpell(
            unit, row, row, float(found.size[unit]), float(1 - min(chance, 1.0)),
            expected=float(found.expected[unit]), noise=found.noise, better_from=row,
        )  # fmt: skip
        spell.since = self._start(spell, start, row, found.residual[:, unit])
        slow = found.residual[spell.since - start :, unit]
        factors = self.table.factors[spell.since : row + 1, unit]
        weights = np.where(np.isfinite(slow), 1 / factors, 0.0)
        spell.weight = float(weights.sum())
        spell.lost = float((weights * np.nan_to_num(spell.expected - slow)).sum())
        self.spells.append(spell)
        self.known[spell.since : row + 1, unit] = True

    def _start(self, spell: SlowSpell, start: int, row: int, residual: np.ndarray) -> int:
        """Return the night from which the slow level fits the values better than the usual one; one
        on which it was measured."""
        loss = spell.size
        gain = loss * (spell.expected - loss / 2 - residual)
        gain = (gain / self.table.factors[start : row + 1, spell.unit])[: spell.flagged - start + 1]
        total = np.cumsum(np.nan_to_num(gain[::-1]))[::-1]
        return start + int(np.argmax(np.where(np.isnan(gain), -np.inf, total)))

    def _update(self, spell: SlowSpell, row: int, residual: float) -> None:
        """Record whether a flagged unit has recovered."""
        if np.isnan(residual):
            return
        factor = self.table.factors[row, spell.unit]
        # Compared with its average loss: the one that it was flagged for is often the largest.
        loss = max(spell.lost / spell.weight, LEAST)
        # One night does not show a recovery.
        step = loss * (residual - spell.expected + loss / 2) / (spell.noise**2 * factor)
        spell.lost += (spell.expected - residual) / factor
        spell.weight += 1 / factor
        if spell.evidence <= 0:
            spell.better_from = row
        step = float(np.clip(step, -_MOST_OF_NIGHT, _MOST_OF_NIGHT))
        spell.evidence = max(0.0, spell.evidence + step)
        if spell.evidence > _RECOVERED:
            spell.until, spell.ended = spell.better_from - 1, row
            self.known[spell.better_from : row + 1, spell.unit] = False

    def redate(self) -> None:
        """Date the starts again, with all nights."""
        for spell in self.spells:
            measured = np.isfinite(self.table.values[:, spell.unit])
            if spell.until is None and not measured[-MEMORY:].any():
                # It is not measured any more, as after it was removed.
                spell.until = int(max(np.flatnonzero(measured), default=spell.flagged))
            end = spell.until if spell.until is not None else len(self.known) - 1
            if end <= spell.flagged:
                continue
            first = max(0, spell.flagged - MEMORY + 1)
            table = self.unexplained(slice(first, end + 1))
            others = np.where(self.known[first : end + 1], np.nan, table.values)
            common, count = detection.common_mode(others, table.kinds, passes=2)
            kind = table.kinds[spell.unit]
            alone = count[:, kind] == 0
            residual = np.where(alone, np.nan, table.values[:, spell.unit] - common[:, kind])
            slow = residual[spell.flagged - first :]
            spell.size = float(spell.expected - np.nanmedian(slow))
            if spell.size > 0:
                spell.since = self._start(spell, first, end, residual)
            last = slow[np.isfinite(slow)][-_GROWN:]
            if spell.until is None and len(last) == _GROWN:
                spell.size = max(spell.size, float(spell.expected - last.max()))


def _parent_values(part: Tracker, of: np.ndarray, window: slice) -> tuple[np.ndarray, np.ndarray]:
    """Return values and factors of the parents (a node of its GPUs, a switch of its nodes).

    A parent's value is the median of its units, each above what its peers and its own earlier
    nights let expect: one slow unit hardly changes it, also where healthy units differ.

    :arg of: number of each unit's parent; -1 without one.
    """
    table, known = part.table.of(window), part.known[window]
    fitted = detection.fit(table, known, known)
    above = fitted.residual - fitted.level(-2)
    order = np.argsort(of, kind="stable")
    order = order[of[order] >= 0]
    sizes = np.bincount(of[order])
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Parents x their units; the last column of the values is empty.
    units = np.full((len(sizes), sizes.max()), -1)
    units[of[order], place] = order
    filled = np.hstack([above, np.full((len(above), 1), np.nan)])
    ordered = np.sort(filled[:, units], axis=-1)
    measured = np.isfinite(ordered).sum(axis=-1)
    middle = np.take_along_axis(ordered, measured[..., None] // 2 % units.shape[1], axis=-1)[..., 0]
    enough = measured >= np.maximum(2, sizes / 2)
    return (
        np.where(enough, middle, np.nan),
        detection.MEDIAN * np.median(table.factors) / np.maximum(measured, 1),
    )


def track(
    chain: list[Tracker],
    parents: list[np.ndarray],
    values_of: Callable[[int, Tracker], None] | None = None,
) -> None:
    """Track several kinds of units together, the largest first (switches, nodes, GPUs): a loss that
    a larger one explains is not attributed to its parts.

    :arg chain: the values of all but the last are those of its units (:func:`_parent_values`).
    :arg parents: of each tracker but the first, the number of each unit's parent; -1 without one.
    :arg values_of: sets the last tracker's values of a row, and of those before it, if they depend
        on what was known in that night.
    """
    settled = [np.zeros(tracker.shift.shape) for tracker in chain]
    for row in range(len(settled[0])):
        if values_of is not None:
            values_of(row, chain[-1])
        window = slice(max(0, row - MEMORY + 1), row + 1)
        for whole, part, of in zip(chain[-2::-1], chain[:0:-1], parents[::-1], strict=True):
            values, factors = _parent_values(part, of, window)
            whole.table.values[window], whole.table.factors[window] = values, factors
        found: list[Night] = []
        for depth, tracker in enumerate(chain):
            if depth:
                of, parent = parents[depth - 1], chain[depth - 1]
                window = slice(parent.start, row + 1)
                extra = (
                    _explained(parent, found[-1], settled[depth - 1], row) + parent.shift[window]
                )
                tracker.shift[window] = np.where(of >= 0, extra[:, of], 0.0)
            found.append(tracker.step(row))
    for tracker in chain:
        tracker.redate()
    for parent, child, of in zip(chain, chain[1:], parents, strict=False):
        _absorb(parent, child, of)


def _explained(parent: Tracker, night: Night, settled: np.ndarray, row: int) -> np.ndarray:
    """Return each parent's loss in each night of the window, while it is flagged or a suspect."""
    start = parent.start
    for spell in parent.spells:
        if spell.until is None:
            first = spell.since if spell.flagged == row else row
            for at in range(max(first, start), row + 1):
                settled[at, spell.unit] = np.nan_to_num(
                    night.residual[at - start, spell.unit] - spell.expected
                )
    shift = settled[start : row + 1].copy()
    for unit in np.flatnonzero(night.judged & ~night.slow & (night.p < detection.SUSPECT_LONG)):
        first = int(night.start[unit])
        shift[first:, unit] = np.nan_to_num(night.residual[first:, unit] - night.expected[unit])
    return shift


def _absorb(parent: Tracker, child: Tracker, of: np.ndarray) -> None:
    """End what was attributed to a part before the whole was flagged."""
    for whole in parent.spells:
        for part in child.spells:
            if of[part.unit] == whole.unit and part.flagged < whole.flagged and (
                part.until is None or part.until >= whole.flagged) and (
                part.since >= whole.since - 1):  # fmt: skip
                part.until = whole.flagged - 1
