"""Screening of pairs of nodes, and of their nodes, links and switches."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plumbline.analysis.screen import detection, pair_fit, uplinks
from plumbline.analysis.screen.detection import FigureTable
from plumbline.analysis.screen.flag import Flag
from plumbline.analysis.screen.pair_fit import PairFit
from plumbline.analysis.screen.peer_groups import Name, PeerGroup
from plumbline.analysis.screen.tracking import Tracker, track
from plumbline.core.text import natural

#: Note of a pair of which either node may be the slow one.
_UNRESOLVED = (
    f"either of the two may be the slow one: each has fewer than {pair_fit.PARTNERS} partners"
)
#: Note of a link between two racks.
_WHICH_END = "the uplink of either, or what joins them: its pairs alone do not show which"


@dataclass
class LastingFlag:
    """A pair, link or switch that is slow; losses are differences of values.

    :ivar lost: when it was flagged. :ivar last: on the last night.
    """

    flag: Flag
    lost: float
    last: float = 0.0

    def go_on(self, night: str, loss: float) -> float:
        """Extend it to a night. Returns its loss: that when it was flagged, or what two successive
        nights exceed, since one may be an outlier."""
        # Until it recovers, `until` is the last night on which it was slow.
        self.flag.until = night
        before, self.last = self.last, loss
        return max(self.lost, min(before, loss))


class PairGroup(PeerGroup):
    """Pairs of nodes, and their nodes, links and switches.

    :ivar within: of pairs between racks, those within racks, which were screened before.
    :ivar known: the nodes that had enough partners on some night. Where pairs within racks know a
        node, those between racks do not judge it: how long a node is alone on an uplink is no
        property of it.
    """

    within: PairGroup | None = None
    known: frozenset[str] = frozenset()

    def run(self) -> None:
        # Nodes, switches, links and pairs share it.
        self.rate /= 4
        #: Row and link -> what the pairs across it lost together.
        self.lost: dict[tuple[int, uplinks.Link], float] = {}
        self.few_links()
        nodes = sorted({node for _, pair in self.group.pairs for node in pair}, key=natural)
        number = {node: i for i, node in enumerate(nodes)}
        switches, of_switch = self.switch_of(nodes)
        fits = self.fits(number)
        self.links(fits, of_switch, switches)
        effects = np.full((len(self.nights), len(nodes)), np.nan)
        factors = np.ones(effects.shape)
        for row, night in fits.items():
            effects[row] = night.effects
            self.known |= {nodes[k] for k in np.flatnonzero(np.isfinite(night.effects))}
            factors[row] = pair_fit.PARTNERS / np.maximum(night.partners, 1)
        if np.isfinite(effects).any():
            units: list[Name] = [(node,) for node in nodes]
            table = FigureTable(effects, factors, self.kinds(units, effects), self.floor)
            chain = [("node", units, Tracker(table, self.rate))]
            self.track_all(chain, [], of_switch, switches)
        if self.within:
            known = self.within.known
            self.flagged = [f for f in self.flagged if f.kind != "node" or f.name[0] not in known]
            self.suspects = [
                s for s in self.suspects if s[1][0] != "node" or s[1][1][0] not in known
            ]
        self.pairs(fits, nodes)

    def fits(self, number: dict[str, int]) -> dict[int, PairFit]:
        """Fit each night's pairs, by row; nights with too few are skipped."""
        rows: dict[int, list[tuple[int, int, float, int]]] = collections.defaultdict(list)
        for (night, pair), values in self.group.pairs.items():
            row, (one, other) = self.row[night], pair
            lost = self.lost.get((row, self.link_of(pair)), 0.0)
            across = self.group.across.get((night, pair), 0)
            rows[row] += [
                (number[one], number[other], self.sign * math.log(value) + lost, across)
                for value in values
            ]
        fits, most = {}, max(collections.Counter(night for night, _ in self.group.pairs).values())
        for row, listed in sorted(rows.items()):
            # Pairs are peers of those that shared an uplink with as many others.
            pairs = {(min(a, b), max(a, b)): across for a, b, _, across in listed}
            numbers = collections.Counter(pairs.values())
            alone = [across for across, number in numbers.items() if number == 1]
            if len(pairs) - len(alone) < detection.FEWEST:
                self.too_few(row, len(pairs), "pair", most)
                continue
            if alone:
                self.too_few(row, len(alone), "pair")
                listed = [one for one in listed if one[-1] not in alone]
            first, second, logs, shared = (np.array(column) for column in zip(*listed, strict=True))
            _, kinds = np.unique(shared, return_inverse=True)
            logs = detection.relative(logs[None], kinds, self.group.better)
            fits[row] = pair_fit.fit(first, second, logs[0], len(number))
        return fits

    def link_of(self, pair: Name) -> uplinks.Link:
        """Return the switches of a pair's nodes; both are empty if one is not known, or both are
        the same."""
        one, other = sorted((self.switches.get(node, "") for node in pair), key=natural)
        return (one, other) if one and one != other else ("", "")

    def few_links(self) -> None:
        """Compare each link with its own earlier nights, if there are too few for peers."""
        names = {self.switches.get(node) for _, pair in self.group.pairs for node in pair}
        if self.group.within is None or len(names) >= detection.FEWEST:
            return
        levels: dict[int, list[float]] = collections.defaultdict(list)
        for (night, _), values in self.group.within.pairs.items():
            levels[self.row[night]] += [self.sign * math.log(value) for value in values]
        cells: dict[int, dict[tuple[uplinks.Link, int], list[float]]] = {}
        for (night, pair), values in self.group.pairs.items():
            row, link = self.row[night], self.link_of(pair)
            if link[0] and levels[row] and self.healthy(row, pair):
                level = float(np.median(levels[row]))
                of = link, self.group.across.get((night, pair), 0)
                cell = cells.setdefault(row, {}).setdefault(of, [])
                cell += [self.sign * math.log(value) - level for value in values]
        history, active = uplinks.LinkHistory(), dict[Name, LastingFlag]()
        for row, night_cells in sorted(cells.items()):
            losses = history.judge(night_cells)
            self.judged += len(losses)
            self.sure |= bool(losses) and row == len(self.nights) - 1
            slow = {link: one for link, one in losses.items() if self.is_slow(link, one, active)}
            suspects = [link for link, one in losses.items() if one.suspect]
            if slow:
                # One slow uplink makes several links slow, not all of them as certainly.
                slow |= {link: losses[link] for link in suspects}
            # What another night may show to be slow is no level of a healthy one.
            history.add(night_cells, {*slow, *suspects})
            self.lost |= {(row, link): one.loss for link, one in slow.items()}
            self.track_links(row, uplinks.explained(slow, losses), losses, active)
            self.suspects += [
                (row, ("link", link), losses[link].p) for link in suspects if link not in slow
            ]
        self.last(active)

    def last(self, active: Mapping[Any, LastingFlag]) -> None:
        """Set what lasts on the last night: what was slow until it was measured last, unless that
        is too long ago to tell."""
        for spell in active.values():
            if self.row[spell.flag.until or ""] >= len(self.nights) - detection.MEMORY:
                spell.flag.until = None

    def healthy(self, row: int, pair: Name) -> bool:
        """Return whether the pairs within racks flagged neither node of a pair by then."""
        return not any(
            flag.kind == "node" and flag.name[0] in pair and self.row[flag.night] <= row
            and (flag.until is None or row <= self.row[flag.until])
            for flag in (self.within.flagged if self.within else ())
        )  # fmt: skip

    def is_slow(
        self, link: uplinks.Link, one: uplinks.LinkLoss, active: dict[Name, LastingFlag]
    ) -> bool:
        """Return whether a link is slow tonight, or has not recovered."""
        lost = max((of.lost for name, of in active.items() if {*name} <= {*link}), default=0.0)
        if lost:
            return one.loss > lost / 2
        return one.p < self.rate and one.loss >= detection.LEAST

    def track_links(
        self,
        row: int,
        slow: dict[Name, float],
        losses: dict[uplinks.Link, uplinks.LinkLoss],
        active: dict[Name, LastingFlag],
    ) -> None:
        """Flag the switches and links that are slow tonight.

        :arg slow: each with its loss. :arg active: those that were slow before; is updated.
        """
        for name in [name for name in active if name not in slow]:
            if any({*name} <= {*link} for link in losses):
                del active[name]
        for name, loss in slow.items():
            if name in active:
                grown = active[name].go_on(self.nights[row], loss)
                active[name].flag.size = -math.expm1(-grown)
                continue
            worst = max(one.p for link, one in losses.items() if {*name} <= {*link})
            note = "" if len(name) == 1 else _WHICH_END
            size = loss if self.group.better == "lower" else -math.expm1(-loss)
            kind = "switch" if len(name) == 1 else "link"
            flag = self.flag(kind, name, row, size, 1 - worst * len(losses), row, row, note)
            active[name] = LastingFlag(flag, loss)

    def links(self, fits: dict[int, PairFit], of_switch: np.ndarray, switches: list[Name]) -> None:
        """Track the links between switches, and fit the nights again without the loss of slow ones:
        it would be attributed to the nodes that have many pairs across them."""
        count = len(switches)
        residual = np.full((len(self.nights), count * count), np.nan)
        numbers = np.ones(residual.shape)
        for row, night in fits.items():
            if count:
                residual[row], numbers[row] = pair_fit.by_link(night, of_switch, count)
        used = np.flatnonzero(np.isfinite(residual).any(axis=0))
        if len(used) < detection.FEWEST:
            return
        factors, kinds = 1 / np.maximum(numbers[:, used], 1), np.zeros(len(used), int)
        table = FigureTable(residual[:, used], factors, kinds, self.floor)
        tracker = Tracker(table, self.rate)
        track([tracker], [])
        names: list[Name] = [
            (switches[k // count][0], switches[k % count][0]) for k in used.tolist()
        ]
        self.take("link", names, tracker)
        self.judged += tracker.judged
        place = {link: i for i, link in enumerate(used.tolist())}
        for row, night in fits.items():
            one, other = of_switch[night.first], of_switch[night.second]
            link = np.minimum(one, other) * count + np.maximum(one, other)
            slow = {spell.unit for spell in tracker.spells
                    if spell.flagged <= row
                    and (spell.ended is None or row < spell.ended)}  # fmt: skip
            slow |= {unit for unit, p in tracker.suspects.get(row, ()) if p < 1e-3}
            units = [place.get(int(k), -1) for k in link]
            # Only pairs of nodes with enough partners show what a link lost.
            lost = np.nan_to_num(residual[row])
            loss = np.array([lost[used[u]] if u in slow else 0.0 for u in units])
            if loss.any():
                fits[row] = pair_fit.without(night, loss, len(of_switch))

    def pairs(self, fits: dict[int, PairFit], nodes: list[str]) -> None:
        """Flag the pairs that are slow themselves, until a measurement shows a recovery."""
        earlier: dict[tuple[int, int], pair_fit.PairNights] = {}
        active: dict[tuple[int, int], LastingFlag] = {}
        for row, night in fits.items():
            # The rate is of a node, and a node is in many pairs.
            rate = self.rate * len(nodes) / len(night.values)
            ends_of = [*zip(night.first.tolist(), night.second.tolist(), strict=True)]
            named = [(nodes[one], nodes[other]) for one, other in ends_of]
            of_several = [(self.nights[row], pair) in self.group.steady for pair in named]
            steady = np.array(of_several) | (night.repeats > 1)
            slow = pair_fit.judge(night, earlier, steady, row, rate)
            self.judged += len(night.values)
            self.sure |= row == len(self.nights) - 1
            for k, (ends, pair) in enumerate(zip(ends_of, named, strict=True)):
                size, p = float(slow.size[k]), float(slow.p[k])
                if ends in active:
                    spell, loss = active[ends], -float(night.residual[k])
                    if loss < spell.lost / 2:
                        del active[ends], earlier[ends]
                    else:
                        spell.flag.size = self.relative(spell.go_on(self.nights[row], loss))
                elif slow.flagged[k]:
                    confidence = 1 - min(p * len(night.values), 1.0)
                    note = "" if night.resolved[k] else _UNRESOLVED
                    since = int(slow.since[k])
                    flag = self.flag("pair", pair, row, size, confidence, since, row, note)
                    active[ends] = LastingFlag(flag, size)
                elif slow.suspect[k]:
                    self.suspects.append((row, ("pair", pair), p))
        self.last(active)
