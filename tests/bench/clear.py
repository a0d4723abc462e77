"""A node that comes back, simulated: how often a healthy one is a no-go, and a slow one is found.

    python -m bench.clear   # in tests/; prints the page, --write keeps it

Seeded. What judges is the code that judges real nodes (plumbline.analysis.clear.comparison).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from plumbline.analysis.clear import comparison

from bench import arguments, publish
from bench.compare import table

#: Healthy nodes and slow ones that are judged for each line of the page, and the seed.
HEALTHY, SLOW, SEED = 1000, 400, 20261124
#: Loss of the slow ones, and the one that a go excludes.
LOSS, MARGIN = 0.05, comparison.ClearRules.margin


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


def figures(site: Site, chance: np.random.Generator) -> list[comparison.NodeFigure]:
    """The figures of one healthy node."""
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
        inside = float(np.sum((now - now.mean()) ** 2)), site.repeats - 1
        recent = np.arange(rows) >= rows - 2
        found.append(
            comparison.NodeFigure(
                values, np.ones(values.shape), recent, rows - 1 if site.tonight else -1, now,
                inside=inside, family=f"{number // 3}",
            )
        )  # fmt: skip
    return found


def _noise(site: Site, chance: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if site.heavy:
        return chance.standard_t(3, shape) * site.noise / np.sqrt(3)
    return chance.normal(0, site.noise, shape)


def outcomes(site: Site, slow: dict[int, int], seed: int = SEED) -> dict[int, Counter]:
    """The verdicts on nodes.

    :arg slow: number of their figures that lost :data:`LOSS` -> how many nodes are judged.
    """
    found: dict[int, Counter] = {lost: Counter() for lost in slow}
    for number in range(max(slow.values())):
        made = figures(site, np.random.default_rng((seed, number)))
        for lost, count in slow.items():
            if number < count:
                now = [replace(figure, now=figure.now + np.log1p(-LOSS) * (n < lost))
                       for n, figure in enumerate(made)]  # fmt: skip
                compared = comparison.compare(now)
                names, _ = comparison.verdicts(compared, ["higher"] * len(now), MARGIN)
                found[lost][_whole(names)] += 1
    return found


def _whole(names: list[str]) -> str:
    if "regressed" in names:
        return "no-go"
    return "not enough data" if "too little data" in names else "go"


USUAL = Site()
BUSY = replace(USUAL, night=0.01)
NOISY = replace(USUAL, noise=0.02)
SITES = {
    "1 % noise": USUAL,
    "1 %, 80 % of it common to the repeats": replace(USUAL, common=0.8),
    "1 %, heavy tails": replace(USUAL, heavy=True),
    "1 %, four nights": replace(USUAL, nights=4, own=4),
    "1 %, a new node": replace(USUAL, own=0),
    "1 %, all nodes vary by 1 % from night to night": BUSY,
    "the same, with 8 peers now": replace(BUSY, tonight=8),
    "2 % noise": NOISY,
    "2 %, 10 repeats, 30 nights, 8 peers now": replace(
        NOISY, repeats=10, nights=30, own=30, tonight=8),
}  # fmt: skip

HEAD = f"""# A node that comes back: false alarms and power

Rendered by `make detection`; do not edit.

How often `plumbline clear` keeps a healthy node out, and how often it finds a slow one. For
example, the first line is for figures of 1 % noise: its column *healthy: no-go* has the share of
the healthy nodes that would be drained.

Simulated: {USUAL.figures} figures in families of three that share half of the variance,
{USUAL.repeats} repeats of each now, {USUAL.nights} earlier nights of {USUAL.peers} peers and of
the node. {USUAL.common:.0%} of the variance of a value is common to the repeats; all nodes vary by
{USUAL.night:.1%} from night to night, and differ by {USUAL.levels:.0%}, if the line has nothing
else. {HEALTHY:,} healthy nodes and {SLOW} of each slow kind, on seeds that nothing was tuned on,
judged by the code that judges real nodes (`plumbline.analysis.clear`) with the default options.
The aim is at most 1 % of the healthy as no-go, and at most 5 % of those slow by {LOSS:.0%} as go,
since a loss is excluded with 95 % confidence.

"""
TAIL = """
*One of 12* is a loss in one figure alone, such as that of a slow disk; *all* is one of the whole
node. *Not enough data* is what neither shows nor excludes a loss of 5 %: measure again, with more
repetitions or with peers. At 2 % noise that is the usual answer from five repeats, since all 12
figures have to exclude the loss. Repeats in one job cannot show what differs from night to night:
this is why more of them help less than more nights. A new node without nights of its own is
compared with its peers alone, so a loss of one that would be faster than they are may pass: more
than 5 % do. Peers that are measured now cancel what moves all nodes from night to night, and with
it most of the uncertainty.
"""
_VERDICTS = ["no-go", "not enough data", "go"]
HEADS = ["what", *(f"{of}: {name}" for of in ("healthy", "one of 12", "all") for name in _VERDICTS)]


def page() -> str:
    """The page's text."""
    rows = []
    for name, site in SITES.items():
        found = outcomes(site, {0: HEALTHY, 1: SLOW, site.figures: SLOW})
        shares = [f"{of[verdict] / of.total():.1%}" for of in found.values()
                  for verdict in _VERDICTS]  # fmt: skip
        rows.append([name, *shares])
    return f"{HEAD}{table(HEADS, rows)}\n{TAIL}"


if __name__ == "__main__":
    options = arguments(__doc__).parse_args()
    publish("clearing-power", page(), options.write)
