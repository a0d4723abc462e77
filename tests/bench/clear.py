"""A node that comes back, simulated: how often a healthy one is a no-go, and a slow one is found.

    python -m bench.clear   # in tests/; prints the page, --write keeps it

Seeded. What judges is the code that judges real nodes (plumbline.analysis.clear).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from plumbline.analysis import clear

#: Nodes that are judged for each line of the page, and the seed of the first.
NODES, SEED = 2000, 20261124


@dataclass(frozen=True)
class Site:
    """What a machine is like; shares of the level.

    :ivar noise: standard deviation of one value. :ivar common: share of its variance that repeats
        in one job have in common.
    :ivar night: standard deviation of what moves all nodes from night to night.
    :ivar levels: standard deviation of what each node always has.
    :ivar peers: nodes measured each night. :ivar nights: earlier nights of all nodes.
    :ivar own: those of them on which the node was measured.
    :ivar repeats: values now. :ivar tonight: peers that are measured with it.
    :ivar figures: in families of three, which share half of the variance of each value.
    :ivar heavy: noise of Student's t with three degrees of freedom instead of normal noise.
    """

    noise: float = 0.01
    common: float = 0.3
    night: float = 0.005
    levels: float = 0.01
    peers: int = 60
    nights: int = 12
    own: int = 12
    repeats: int = 5
    tonight: int = 0
    figures: int = 12
    heavy: bool = False


def figures(site: Site, chance: np.random.Generator, loss: float, slow: int) -> list[clear.Figure]:
    """The figures of one node, of which the first ``slow`` lost ``loss``."""
    found = []
    columns, rows = site.peers + 1, site.nights + (site.tonight > 0)
    for number in range(site.figures):
        if number % 3 == 0:
            shared = [_noise(site, chance, shape) for shape in
                      ((rows, columns), (1,), (site.repeats,))]  # fmt: skip
            drift = chance.normal(0, site.night, rows + 1)
        levels = chance.normal(0, site.levels, columns)

        def noisy(part: int, shape: tuple[int, ...], shared=shared) -> np.ndarray:
            return np.sqrt(0.5) * (shared[part] + _noise(site, chance, shape))

        values = drift[:rows, None] + levels + noisy(0, (rows, columns))
        values[: site.nights - site.own, 0] = np.nan
        if site.tonight:
            values[-1, 1 + site.tonight :] = np.nan
            values[-1, 0] = np.nan
        now = np.sqrt(site.common) * noisy(1, (1,)) + np.sqrt(1 - site.common) * noisy(
            2, (site.repeats,))  # fmt: skip
        now += levels[0] + drift[rows - 1 if site.tonight else rows]
        now += np.log1p(-loss) if number < slow else 0.0
        inside = float(np.sum((now - now.mean()) ** 2)), site.repeats - 1
        recent = np.arange(rows) >= rows - 2
        found.append(
            clear.Figure(
                values, np.ones(values.shape), recent, rows - 1 if site.tonight else -1, now,
                inside=inside, family=f"{number // 3}",
            )
        )  # fmt: skip
    return found


def _noise(site: Site, chance: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if site.heavy:
        return chance.standard_t(3, shape) * site.noise / np.sqrt(3)
    return chance.normal(0, site.noise, shape)


def outcomes(site: Site, loss: float, slow: int, count: int = NODES, seed: int = SEED) -> Counter:
    """The verdicts on so many nodes."""
    found: Counter = Counter()
    for number in range(count):
        chance = np.random.default_rng((seed, number))
        made = figures(site, chance, loss, slow)
        names, _ = clear.verdicts(clear.judge(made), ["higher"] * len(made))
        if "regressed" in names:
            found["no-go"] += 1
        elif "too little data" in names:
            found["not enough data"] += 1
        else:
            found["go"] += 1
    return found
