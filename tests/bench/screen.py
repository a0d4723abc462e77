"""How often screening flags a healthy unit, and how soon a slow one, on simulated fleets.

``python -m bench.screen`` in ``tests/`` prints the page; ``--write`` keeps it as
``docs/screening-power.md``. The seeds are not those that the thresholds were tried on.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from fleet import Fleet
from plumbline.analysis.screen import Flag, Group, screen
from plumbline.core.formats import markdown_table
from scipy import stats

from bench import arguments, publish

#: First seed; those below were for trying.
SEED = 1_710_000
#: The aim for false alarms, of a unit and night.
AIM = 2e-5
NOISE = 0.02
#: Loss and the night by which it is flagged; 1 is the first slow one.
COLUMNS = ((0.05, 1), (0.05, 3), (0.05, 7), (0.08, 1), (0.08, 3))


@dataclass
class Tally:
    """What a rule flagged, over all fleets; ``judged``: nodes and nights."""

    false: int = 0
    judged: int = 0
    repeats: float = 0.0
    delays: dict[float, list[float]] = field(default_factory=lambda: {0.05: [], 0.08: []})

    def add(self, fleet: Fleet, names: Iterable[tuple[tuple[str, ...], int]], judged: int) -> None:
        """Counts a fleet's flags: a unit and the night."""
        first = dict.fromkeys(fleet.slow, np.inf)
        for name, night in names:
            since, _ = fleet.slow.get(name, (np.inf, 0))
            if night < since:
                self.false += 1
            else:
                first[name] = min(first[name], night - since + 1)
        for name, (_, loss) in fleet.slow.items():
            self.delays[loss].append(first[name])
        self.judged += judged

    def cells(self) -> list[str]:
        by = [np.mean(np.array(self.delays[loss]) <= night) for loss, night in COLUMNS]
        return [f"{1000 * self.false / self.judged:.4f}", *(f"{share:.1%}" for share in by)]


def node_nights(fleet: Fleet) -> int:
    """The number to which false alarms are related."""
    return fleet.nodes * fleet.nights


def slow_ones(fleet: Fleet, units: list[tuple[str, ...]], each: int) -> None:
    """Makes some units slow for good, half of them by 5 % and half by 8 %, each since a random
    night that leaves it three."""
    chosen = fleet.random.choice(len(units), 2 * each, replace=False)
    for k, unit in enumerate(chosen):
        since = int(fleet.random.integers(0, fleet.nights - 2))
        fleet.slow[units[unit]] = since, (0.05, 0.08)[k % 2]


def flagged(group: Group | list[Group], fleet: Fleet, switches: bool = False):
    """Units that screening flags, with the night; a link has the kind before its switches, as in
    a Fleet."""
    groups = group if isinstance(group, list) else [group]
    found = screen(groups, fleet.switch_of() if switches else None)
    for one in found.flagged:
        yield (("link", *one.name) if one.kind == "link" else one.name), int(one.night)


def by_rule(group: Group, fleet: Fleet, slow: Callable, running: int = 1):
    """What a simple rule flags: nodes whose value is slow in so many nights running."""
    counts: dict[str, int] = {}
    for night in range(fleet.nights):
        values = np.array([np.mean(group.values[f"{night}", (name,)]) for name in fleet.names])
        out = slow(np.log(values / np.median(values)))
        for name, is_slow in zip(fleet.names, out, strict=True):
            counts[name] = counts.get(name, 0) + 1 if is_slow else 0
            # Once for each time that it is slow.
            if counts[name] == running:
                yield (name,), night


RULES = {
    "rule: 5 % below the night's median": lambda x: x < np.log(0.95),
    "rule: 10 % below the night's median": lambda x: x < np.log(0.90),
    "rule: 3 robust standard deviations (MAD)": (
        lambda x: x < -3 * 1.4826 * np.median(np.abs(x))),
}  # fmt: skip


def best_possible(rows: int, loss: float, nights: int) -> float:
    """Power of the best possible test, of known noise, common mode, level and loss, at the
    aimed-at rate of false alarms: a mean below a limit. A slow unit's noise is less by its loss."""
    error = NOISE / np.sqrt(rows * nights)
    limit = 1 - stats.norm.isf(AIM) * error
    return float(stats.norm.cdf((limit - (1 - loss)) / ((1 - loss) * error)))


def again(fleet: Fleet, group: Group, tally: Tally, switches: bool = False) -> None:
    """The second stage: suspects, and those flagged for the first time, are measured three times
    more in their night."""
    known = fleet.switch_of() if switches else None
    suspects = screen([group], known, all_suspects=True).suspects
    of_units = [one for one in suspects if one[0] in ("node", "gpu", "pair")]
    fleet.again(group, of_units, 3)
    tally.repeats += len(of_units) / fleet.nights


def of_nodes(fleets: int) -> dict[str, Tally]:
    """Nodes: one value a night, three, and one with retests of suspects; and simple rules."""
    ours = ["one value a night", "one value a night, nodes that differ by 2 %",
            "one value, suspects three times more", "three values a night"]  # fmt: skip
    tallies = {name: Tally() for name in [*ours, *RULES]}
    for k in range(fleets):
        for name, levels, rows in zip(ours, (0, 0.02, 0, 0), (1, 1, 1, 3), strict=True):
            fleet = Fleet(SEED + k, noise=NOISE, levels=levels)
            slow_ones(fleet, [(n,) for n in fleet.names], 4)
            group = fleet.values(rows)
            if name == ours[0]:
                for rule, slow in RULES.items():
                    tallies[rule].add(fleet, by_rule(group, fleet, slow), node_nights(fleet))
            if name == ours[2]:
                again(fleet, group, tallies[name])
            tallies[name].add(fleet, flagged(group, fleet), node_nights(fleet))
    return tallies


def of_gpus(fleets: int) -> dict[str, Tally]:
    """Single GPUs of nodes that have four."""
    ours = ["one value a night", "one value, suspects three times more"]
    tallies = {name: Tally() for name in ours}
    for k in range(fleets):
        fleet = Fleet(SEED + 1000 + k, noise=NOISE)
        slow_ones(fleet, [(n, f"gpu{g}") for n in fleet.names for g in range(4)], 4)
        group = fleet.values(gpus=4)
        for name in ours:
            if name == ours[1]:
                again(fleet, group, tallies[name])
            tallies[name].add(fleet, flagged(group, fleet), node_nights(fleet))
    return tallies


def of_links(fleets: int) -> dict[str, Tally]:
    """Links between two switches, and single nodes, from rounds of random pairs."""
    tallies = {"a link, 18 rounds of pairs a night": Tally(),
               "a node, 18 rounds of pairs a night": Tally()}  # fmt: skip
    for k in range(fleets):
        for name, tally in tallies.items():
            fleet = Fleet(SEED + 2000 + k, noise=NOISE)
            names = sorted(set(fleet.switch_of().values()))
            units = [("link", one, other) for one in names for other in names if one < other]
            slow_ones(fleet, units if "link" in name else [(n,) for n in fleet.names], 4)
            group = fleet.pairs()
            tally.add(fleet, flagged(group, fleet, switches=True), node_nights(fleet))
    return tallies


#: Number of figures, and options of Fleet.figures.
FIGURES = {
    "one figure": (1, {}),
    "two figures": (2, {}),
    "four figures": (4, {}),
    "four, correlation 0.5": (4, {"correlation": 0.5}),
    "four, correlation 0.9": (4, {"correlation": 0.9}),
    "four, a third of the values missing": (4, {}),
    "four, noise of Student's t, 5 degrees of freedom": (4, {"tails": 5}),
    "four, 1 % of values 10 to 40 % lower": (4, {"outliers": 0.01}),
}


@dataclass
class OfFigures:
    """What is found from several figures, where all fall and where only the first one does."""

    every: Tally = field(default_factory=Tally)
    first: Tally = field(default_factory=Tally)
    alone: int = 0
    together: int = 0

    def add(self, fleet: Fleet, only: set[tuple[str, ...]], flags: list[Flag]) -> None:
        """Counts a fleet's flags."""
        slow = fleet.slow
        for tally, names in ((self.every, set(slow) - only), (self.first, only)):
            fleet.slow = {name: slow[name] for name in slow if name in names}
            mine = [(flag.name, int(flag.night)) for flag in flags if flag.name in names]
            tally.add(fleet, mine, node_nights(fleet))
        fleet.slow = slow
        for flag in flags:
            if int(flag.night) < slow.get(flag.name, (np.inf,))[0]:
                self.alone += not flag.note
                self.together += bool(flag.note)

    def cells(self) -> list[str]:
        of = [(self.every, 0.05, 1), (self.every, 0.05, 3), (self.every, 0.08, 1),
              (self.every, 0.08, 3), (self.first, 0.08, 1), (self.first, 0.08, 3)]  # fmt: skip
        by = [np.mean(np.array(tally.delays[loss]) <= night) for tally, loss, night in of]
        false = [1000 * number / self.every.judged for number in (self.alone, self.together)]
        return [*(f"{rate:.4f}" for rate in false), *(f"{share:.1%}" for share in by)]


def of_figures(fleets: int) -> dict[str, OfFigures]:
    """Nodes by one value a night of several figures."""
    found = {name: OfFigures() for name in FIGURES}
    for k in range(fleets):
        for name, (count, options) in FIGURES.items():
            fleet = Fleet(SEED + 3000 + k, nights=20, noise=NOISE)
            slow_ones(fleet, [(n,) for n in fleet.names], 8)
            only = set(list(fleet.slow)[8:])
            groups = fleet.figures(count, only=only, **options)
            if "missing" in name:
                for group in groups:
                    kept = fleet.random.random(len(group.values)) > 1 / 3
                    listed = zip(group.values.items(), kept, strict=True)
                    group.values = {key: rows for (key, rows), keep in listed if keep}
            found[name].add(fleet, only, screen(groups).flagged)
    return found


SIZES = (5, 6, 8, 10, 15, 20)
#: Noise, and its degrees of freedom of Student's t.
SMALL_NOISE = {"0.5 %": (0.005, np.inf), "2 %": (0.02, np.inf), "5 %": (0.05, np.inf),
               "2 %, t": (0.02, 5)}  # fmt: skip


def of_small(fleets: int) -> dict[int, list[str]]:
    """Fleets of a few nodes: false alarms in the first twelve nights, and large losses."""
    rows: dict[int, list[str]] = {}
    for nodes in SIZES:
        cells = []
        for noise, tails in SMALL_NOISE.values():
            false = 0
            for k in range(fleets):
                fleet = Fleet(SEED + 4000 + k, nodes=nodes, nights=12, noise=noise)
                false += len(screen(fleet.figures(1, tails=tails)).flagged)
            cells.append(f"{1000 * false / (fleets * nodes * 12):.2f}")
        for loss in (0.3, 0.5):
            for night in range(3):
                hits = 0
                for k in range(fleets):
                    slow = {("n003",): (night, loss)}
                    fleet = Fleet(SEED + 5000 + k, nodes=nodes, nights=night + 1, noise=0.006,
                                  slow=slow)  # fmt: skip
                    names = {flag.name for flag in screen(fleet.figures(1)).flagged}
                    hits += names == {("n003",)}
                cells.append(f"{hits / fleets:.0%}")
        rows[nodes] = cells
    return rows


def of_unequal(fleets: int) -> dict[str, tuple[Tally, int, int]]:
    """GPUs of which healthy ones differ by 8 %: what is found, and of those that are slow from
    the first night on how many are flagged in it, and how many there were."""
    found = {}
    for noise, count in ((0.005, 1), (0.01, 1), (0.01, 3)):
        tally, at_once, of = Tally(), 0, 0
        for k in range(fleets):
            fleet = Fleet(SEED + 6000 + k, nodes=100, nights=20, noise=noise, parts=0.08)
            units = [(n, f"gpu{g}") for n in fleet.names for g in range(4)]
            slow_ones(fleet, units, 4)
            first = {name for name, (since, _) in fleet.slow.items() if since == 0}
            groups = [fleet.values(gpus=4) for _ in range(count)]
            for number, group in enumerate(groups):
                group.label = f"figure {number}"
            flags = list(flagged(groups, fleet))
            at_once += sum(name in first and night == 0 for name, night in flags)
            of += len(first)
            # On the first night nothing tells a slow GPU from one that was always so.
            for name in first:
                del fleet.slow[name]
            known = [(name, night) for name, night in flags if name not in first]
            tally.add(fleet, known, node_nights(fleet))
        found[f"{count} figure{'s' * (count > 1)}, noise of {noise:.1%}"] = tally, at_once, of
    return found


def new_tables(figures: dict, small: dict, unequal: dict, fleets: list[int]) -> list[str]:
    """The sections on several figures, small fleets, and unequal GPUs."""
    of = [
        [name, *tally.cells(), f"{at_once} of {count}"]
        for name, (tally, at_once, count) in unequal.items()
    ]
    aim = ["**aim, four figures**", "**≤ 0.02**", "**≤ 0.02**", "", "", "**≥ 80 %**", "", "", ""]
    return [
        "## Several figures at once",
        "",
        markdown_table(
            ["", "false by one figure", "false by several", "5 %: night 1", "by night 3",
             "8 %: night 1", "by night 3", "only in one: 8 %: night 1", "by night 3"],
            [*([name, *one.cells()] for name, one in figures.items()), aim],
        ),
        "",
        f"{fleets[3]} fleets of 500 nodes and 20 nights, noise of 2 % in each figure; false alarms",
        "per 1,000 node-nights. Four nodes of a fleet lose 5 % and four 8 % in all figures, and as",
        "many in one figure only. Where half of the noise is common to all figures, four of them",
        "are worth 1.6 independent ones, and where nine tenths are, 1.1.",
        "",
        "Single outliers and heavy tails are false alarms of a figure alone in the first nights,",
        "above the aim, until the fleet has shown that they are usual: nothing distinguishes them",
        "from a node that is slow since that night. They are hardly any of several figures, since",
        "the worst one is omitted.",
        "",
        "## Small fleets",
        "",
        markdown_table(
            ["nodes", *(f"false: noise {name}" for name in SMALL_NOISE),
             "-30 %: night 1", "night 2", "night 3", "-50 %: night 1", "night 2", "night 3"],
            ([nodes, *cells] for nodes, cells in small.items()),
        ),
        "",
        f"{fleets[4]} fleets of each size; false alarms per 1,000 node-nights in the first twelve",
        "nights. *t* is Student's, with 5 degrees of freedom. Losses are of one node on the first,",
        "second or third night that the fleet is measured at all, with noise of 0.6 %; they count",
        "if that node and no other is flagged. The values of four peers do not determine their",
        "noise, so that a loss of 30 % among five nodes can remain a suspect. Heavy tails exceed",
        "the aim of 0.02 here: a few nodes do not show in twelve nights that they are usual.",
        "",
        "## GPUs of which healthy ones differ by 8 %",
        "",
        markdown_table(
            ["", "false per 1,000 node-nights", "5 %: night 1", "by night 3", "by night 7",
             "8 %: night 1", "by night 3", "slow from the first night, found in it"],
            of,
        ),
        "",
        f"{fleets[5]} fleets of 100 nodes with four GPUs and 20 nights. Each GPU is always up to",
        "8 % slower than the fastest (uniform); 8 % is the average variation between GPUs of one",
        "cluster that Sinha et al. found on five systems (*Not All GPUs Are Created Equal*, SC22,",
        "arXiv:2208.11035). From the second night on, a GPU is compared with its own past. On the",
        "first night it has none: a GPU that lost 8 % is then one of the slower half, and no",
        "measurement of this night can show the loss. It is listed as soon as it gets worse.",
        "",
    ]  # fmt: skip


def page(nodes: dict, gpus: dict, links: dict, new: list[str], fleets: list[int]) -> str:
    """The tables as the docs' page."""
    head = ["", "false per 1,000 node-nights", "5 %: night 1", "by night 3", "by night 7",
            "8 %: night 1", "by night 3"]  # fmt: skip
    aim = ["**aim**", "**≤ 0.02**", "", "**≥ 90 %**", "", "**≥ 95 %**", ""]

    def best(rows: int) -> list[str]:
        name = f"best possible, {rows} value{'s' * (rows > 1)} a night"
        return [name, "0.02", *(f"{best_possible(rows, *column):.1%}" for column in COLUMNS)]

    def aimed(rows: list[list[str]]) -> list[str]:
        return [markdown_table(head, [*rows, aim]), ""]

    def measured(tallies: dict[str, Tally]) -> list[list[str]]:
        return [[name, *tally.cells()] for name, tally in tallies.items()]

    stages = nodes["one value, suspects three times more"]
    return "\n".join([
        "# Screening: false alarms and power",
        "",
        "Rendered by `make detection`; do not edit.",
        "",
        "How often `plumbline screen` flags a healthy node, and how soon it finds a slow one. For",
        "example, the first table has a row for one value a night, and one in which suspects are",
        "measured again in the same night.",
        "",
        f"Simulated: 500 nodes, 40 nights, gaussian noise of {NOISE:.0%} in each measurement, and",
        "common-mode variation of 2 %, which moves all nodes of a night. Four units of each fleet",
        "become slow by 5 % and four by 8 %, permanently, on a random night; night 1 is the first",
        "slow one. A flag counts as false if the unit is never slow, or not yet. Each judgement",
        f"uses what was known on the night. {fleets[0]} fleets of nodes, {fleets[1]} of GPUs and",
        f"{fleets[2]} of pairs, on seeds that nothing was tuned on.",
        "",
        "## Nodes",
        "",
        *aimed([best(1), best(3), best(4), *measured(nodes)]),
        "*Best possible* is the most powerful test (Neyman and Pearson) that knows the noise, the",
        "common-mode variation, the node's own level and its loss, and uses the whole allowed rate",
        "of false alarms on that one night. From one value of 2 % noise a night **nothing can meet",
        "the aims**: a loss of 8 % is 4 standard deviations, and one in 50,000 healthy values is",
        "4.1 off. Screening with one value is below the best possible. It has to estimate what",
        "that test knows, uses a third of the rate, and divides it between losses of one night, of",
        "three, and of many.",
        "",
        "Measuring again in the same night meets the aims: the suspects and the newly flagged, on",
        f"average {stages.repeats / fleets[0]:.0f} of 500 nodes, three times more.",
        "",
        "## One slow GPU of four in a node",
        "",
        *aimed(measured(gpus)),
        f"2,000 GPUs; {gpus['one value, suspects three times more'].repeats / fleets[1]:.0f} "
        "suspects a night, of nodes and GPUs, are measured again. The rate is that of a node: one",
        "GPU has an eighth of it, since it shares it with the node and the other three.",
        "",
        "## One bad link between two of 25 switches",
        "",
        *aimed(measured(links)),
        "False alarms of every kind count: nodes, links, switches and pairs. Nothing is measured",
        "again: a link carries about fifteen pairs a night, a node eighteen.",
        "",
        *new,
    ])  # fmt: skip


def main() -> None:
    """Measures, prints, and keeps the page if that is asked."""
    parser = arguments(__doc__)
    parser.add_argument("--fleets", type=int, nargs=6, default=[8, 3, 2, 4, 25, 2],
                        metavar="N",
                        help="of nodes, GPUs, pairs, figures, few nodes, unequal GPUs")  # fmt: skip
    options = parser.parse_args()
    measures = (of_nodes, of_gpus, of_links, of_figures, of_small, of_unequal)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        running = [
            pool.submit(measure, fleets)
            for measure, fleets in zip(measures, options.fleets, strict=True)
        ]
        found = [one.result() for one in running]
    text = page(*found[:3], new_tables(*found[3:], options.fleets), options.fleets)
    publish("screening-power", text, options.write)


if __name__ == "__main__":
    main()
