"""Links between racks of a machine that has too few of them to be each other's peers.

Each link is compared with its own earlier nights: the slower pairs across it, relative to the pairs
within racks of the same night, so that what moves all of them cancels. Pairs are compared with
those that shared an uplink with as many others.

Pure: values as in :mod:`plumbline.analysis.screen.detection`, but logarithms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from plumbline.analysis.distributions import t_sf
from plumbline.analysis.screen.detection import LEAST_NOISE, SUSPECT_LONG, USUAL_NOISE
from plumbline.analysis.stats import MAD_TO_STD

#: Two racks.
Link = tuple[str, str]

#: Fewest pairs from which a link has a value in a night.
FEWEST_PAIRS = 3

#: Standard error of a normal distribution's quartile over that of its mean.
QUARTILE = 1.36

#: Nights that the usual variation of a link from night to night counts as: as many as there must be
#: for a loss of 10 % to be flagged against two healthy nights that vary by it. From fewer nights
#: nothing determines the tail of their distribution.
PRIOR = 10


@dataclass
class LinkLoss:
    """How much a link lost in a night.

    :ivar loss: difference of logarithms from its earlier nights, positive if it is slow.
    :ivar p: probability of as large a loss by chance.
    """

    loss: float
    p: float

    @property
    def suspect(self) -> bool:
        """Whether another night would help to decide."""
        return self.p < SUSPECT_LONG


@dataclass
class LinkHistory:
    """The links of a machine, night by night.

    :ivar levels: link and number of pairs that shared an uplink -> the levels of healthy nights.
    :ivar last: link -> its probability on the last night on which it was measured.
    """

    levels: dict[tuple[Link, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    last: dict[Link, float] = field(default_factory=dict)

    def judge(self, night: Mapping[tuple[Link, int], list[float]]) -> dict[Link, LinkLoss]:
        """Return the loss of each link that has earlier nights.

        :arg night: as of :attr:`levels`, the values of the night's pairs.
        """
        between, freedom = self._between()
        found: dict[Link, list[tuple[float, float, float]]] = defaultdict(list)
        for (link, across), values in night.items():
            before = self.levels.get((link, across))
            if before and len(values) >= FEWEST_PAIRS:
                level, error = _level(values)
                found[link].append((np.mean(before) - level, error, len(before)))
        losses = {}
        for link, cells in found.items():
            lost, error, number = np.mean(cells, axis=0)
            wide = math.hypot(between, error / math.sqrt(len(cells))) * math.sqrt(1 + 1 / number)
            alone = float(t_sf(lost / wide, freedom))
            # Two nights must both be slow: the chance is that of the less certain one, twice.
            both = max(alone, self.last.get(link, 1.0)) ** 2
            self.last[link] = alone
            losses[link] = LinkLoss(float(lost), 2 * min(alone, both))
        return losses

    def add(self, night: Mapping[tuple[Link, int], list[float]], slow: Iterable[Link]) -> None:
        """Add a night, without the links that are slow."""
        for (link, across), values in night.items():
            if link not in {*slow} and len(values) >= FEWEST_PAIRS:
                self.levels[link, across].append(_level(values)[0])

    def _between(self) -> tuple[float, float]:
        """Return the standard deviation of a link's level from night to night, and its degrees of
        freedom."""
        squares, freedom = PRIOR * USUAL_NOISE**2, PRIOR
        for levels in self.levels.values():
            squares += float(np.var(levels)) * len(levels)
            freedom += len(levels) - 1
        return math.sqrt(squares / freedom), freedom


def _level(values: list[float]) -> tuple[float, float]:
    """Return the lower quartile of values, and its standard error.

    Pairs that share an uplink do not all send at the same time. The fast ones show for how long
    they were alone, and the slow ones what the uplink carries.
    """
    rows = np.array(values)
    scale = max(MAD_TO_STD * float(np.median(np.abs(rows - np.median(rows)))), LEAST_NOISE)
    return float(np.quantile(rows, 0.25)), QUARTILE * scale / math.sqrt(len(rows))


def explained(
    slow: Mapping[Link, LinkLoss], measured: Iterable[Link]
) -> dict[tuple[str, ...], float]:
    """Return the switch or links that explain the losses of links, each with its loss.

    It is one switch if all of its links are slow, at least two, and no others are.
    """
    switches = sorted({name for link in slow for name in link})
    for name in switches:
        own = {link for link in measured if name in link}
        if len(own) > 1 and own == slow.keys():
            return {(name,): float(np.mean([slow[link].loss for link in own]))}
    return {link: one.loss for link, one in slow.items()}
