"""Before and after, simulated: how often a healthy figure is called regressed, and a loss is found.

    python -m bench.compare   # in tests/; prints the page, --write keeps it

Seeded. What judges is the code that judges real sessions (plumbline.analysis.compare.judge).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from plumbline.analysis.compare import duet, judge
from plumbline.check.duet import order
from plumbline.core.formats import markdown_table
from scipy import stats

from bench import arguments, publish

#: Loss that must be found, and difference below which a figure counts as unchanged.
LOSS, WITHIN = 0.05, 0.02
#: Share of healthy figures that may be called regressed.
FALSE = 0.001
#: Figures that are judged for each number of the page.
FIGURES = 40_000

Noise = Callable[[np.random.Generator, tuple[int, int], float], np.ndarray]


def gaussian(chance: np.random.Generator, shape: tuple[int, int], noise: float) -> np.ndarray:
    """Logarithms of values with normal noise."""
    return np.log1p(np.maximum(chance.normal(0, noise, shape), -0.9))


def lognormal(chance: np.random.Generator, shape: tuple[int, int], noise: float) -> np.ndarray:
    """Logarithms that are normal."""
    return chance.normal(0, noise, shape)


def outliers(chance: np.random.Generator, shape: tuple[int, int], noise: float) -> np.ndarray:
    """Three sessions in a hundred lose 5 to 30 % instead."""
    far = chance.random(shape) < 0.03
    return np.where(
        far, np.log1p(-chance.uniform(0.05, 0.3, shape)), lognormal(chance, shape, noise)
    )


def heavy(chance: np.random.Generator, shape: tuple[int, int], noise: float) -> np.ndarray:
    """Student's t with three degrees of freedom, of that standard deviation."""
    return chance.standard_t(3, shape) * noise / 3**0.5


def skewed(chance: np.random.Generator, shape: tuple[int, int], noise: float) -> np.ndarray:
    """Losses of a lognormal law (shape 0.75, skewness 3.3), of that standard deviation."""
    square = 0.75**2
    drawn = chance.lognormal(0, 0.75, shape) - np.exp(square / 2)
    return -noise * drawn / np.sqrt((np.exp(square) - 1) * np.exp(square))


def autocorrelated(chance: np.random.Generator, shape: tuple[int, int], noise: float) -> np.ndarray:
    """Each night half of the last (correlation 0.5)."""
    fresh = chance.normal(0, noise * 0.75**0.5, shape)
    values = np.empty(shape)
    values[:, 0] = chance.normal(0, noise, shape[0])
    for night in range(1, shape[1]):
        values[:, night] = 0.5 * values[:, night - 1] + fresh[:, night]
    return values


def judged(
    values: np.ndarray, lossy: np.ndarray, sessions: int, loss: float, peers: bool
) -> np.ndarray:
    """Verdicts of figures of which higher is better.

    :arg values: logarithms, one row a figure: its past, and so many sessions before and after.
    :arg lossy: which figures have lost ``loss`` after.
    :arg peers: whether they are figures of one comparison, or each is one of its own.
    """
    past = values.shape[1] - 2 * sessions
    values = values.copy()
    values[lossy, past + sessions :] += np.log1p(-loss)
    before, after = values[:, past : past + sessions], values[:, past + sessions :]
    signs = np.ones(len(values))
    groups = 0 * signs if peers else np.arange(len(values))
    found = judge.estimate(before, after, values[:, :past], groups)
    if not peers:
        return judge.verdicts(found, signs, 0 * signs, WITHIN, LOSS, adjusted=found.p)
    as_one = judge.group_change(before, after, signs, found.noise, found.difference)
    return judge.verdicts(found, signs, np.full(len(values), as_one.direction), WITHIN, LOSS)


def alone(noise: Noise, size: float, sessions: int, past: int, loss: float, count: int, seed: int):
    """Verdicts of figures that are each compared alone."""
    found = []
    chance = np.random.default_rng(seed)
    for part in range(0, count, 20_000):
        rows = min(20_000, count - part)
        values = noise(chance, (rows, past + 2 * sessions), size)
        found.append(judged(values, np.full(rows, loss > 0), sessions, loss, peers=False))
    return np.concatenate(found)


def shares(verdicts: np.ndarray) -> tuple[float, float, float]:
    """Shares of regressed, too little data, and passed."""
    names = (["regressed"], ["too little data"], ["unchanged", "improved"])
    return tuple(float(np.isin(verdicts, name).mean()) for name in names)


def oracle(size: float, sessions: int, past: int) -> float:
    """The best that any rule could do which calls one healthy figure in a thousand regressed: the
    share of losses found where noise and law are known exactly (Neyman and Pearson)."""
    error = size * np.sqrt(1 / sessions + 1 / (sessions + past))
    return float(stats.norm.cdf(-np.log1p(-LOSS) / error - stats.norm.isf(FALSE)))


@dataclass(frozen=True)
class Family:
    """Figures that are compared together.

    :ivar lossy: share of them that loses; ``common``: share of the variance that is common to
        all figures of a session; ``noises``: of the figures, in turn.
    """

    name: str
    figures: int
    lossy: float
    common: float = 0.0
    noises: tuple[float, ...] = (0.02,)


#: A lognormal law of noises: its deciles' middles, in no order.
UNLIKE = tuple(0.02 * np.exp(0.7 * stats.norm.ppf((np.arange(10) * 7 % 10 + 0.5) / 10)))
FAMILIES = [
    Family("all 20 figures lose", 20, 1.0),
    Family("all 200 figures lose", 200, 1.0),
    Family("1 of 20 loses", 20, 0.05),
    Family("10 of 200 lose", 200, 0.05),
    Family("half of 200 lose", 200, 0.5),
    Family("all 200 lose, half of the variance is common-mode", 200, 1.0, 0.5),
    Family(
        "10 of 200 lose, a tenth of the figures has 8 % noise",
        200,
        0.05,
        noises=(*[0.02] * 9, 0.08),
    ),
    Family(
        f"10 of 200 lose, noises of {min(UNLIKE):.1%} to {max(UNLIKE):.1%}",
        200,
        0.05,
        noises=UNLIKE,
    ),
]


def family(which: Family, loss: float, comparisons: int, seed: int) -> tuple[np.ndarray, float]:
    """Shares of the verdicts of the figures that lost (all of them, where none did), and the share
    of the comparisons in which a healthy figure was called regressed."""
    chance = np.random.default_rng(seed)
    lossy = np.arange(which.figures) < round(which.lossy * which.figures)
    found, alarms = [], 0
    for _ in range(comparisons):
        own = chance.normal(0, 1, (which.figures, 10))
        common = chance.normal(0, 1, (1, 10))
        values = np.sqrt(1 - which.common) * own + np.sqrt(which.common) * common
        values *= np.resize(which.noises, which.figures)[:, None]
        verdicts = judged(values, lossy & (loss > 0), 5, loss, peers=True)
        found.append(verdicts[lossy] if loss else verdicts)
        alarms += (verdicts[~(lossy & (loss > 0))] == "regressed").any()
    return np.array(shares(np.concatenate(found))), alarms / comparisons


@dataclass(frozen=True)
class Jobs:
    """Duets of five jobs, of which each side's value varies by 2 % from job to job.

    :ivar common: share of the variance that both sides of a job have in common; ``memory``: its
        correlation from one run to the next (1 is a job's constant).
    :ivar apart: share of the rest that is of a side of a job, and not of its single runs.
    :ivar samples: runs of each side in a job. :ivar noise: of the runs.
    """

    name: str
    common: float = 0.5
    memory: float = 1.0
    apart: float = 0.0
    samples: int = 6
    noise: Noise = lognormal

    def pairs(self, chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the values of both sides: figures by jobs by samples."""
        shape, runs = (count, 5), 2 * self.samples
        shared = np.empty((*shape, runs))
        shared[..., 0] = chance.normal(0, 1, shape)
        for run in range(1, runs):
            fresh = chance.normal(0, 1, shape)
            shared[..., run] = (
                self.memory * shared[..., run - 1] + (1 - self.memory**2) ** 0.5 * fresh
            )
        own = 0.02 * (1 - self.common) ** 0.5
        size = own * ((1 - self.apart) * self.samples) ** 0.5
        single = self.noise(chance, (count * 5, runs), size).reshape(*shape, runs)
        turns = np.array([*order(self.samples, 1)])
        sides = [
            (0.02 * self.common**0.5 * shared + single)[..., turns == side]
            + chance.normal(0, own * self.apart**0.5, (*shape, 1))
            for side in "ab"
        ]
        return sides[0], sides[1]

    def best(self) -> float:
        """The best that any rule could do that knows the noise, which is normal."""
        error = 0.02 * (2 * (1 - self.common) / 5) ** 0.5
        if error == 0 or self.noise is not lognormal or self.memory < 1:
            return np.nan
        return float(stats.norm.cdf(-np.log1p(-LOSS) / error - stats.norm.isf(FALSE)))


DUETS = [
    Jobs("half is common"),
    Jobs("half is common", samples=4),
    Jobs("half is common", samples=10),
    Jobs("none is common", common=0.0),
    Jobs("90 % is common", common=0.9),
    Jobs("half is common, outliers", noise=outliers),
    Jobs("half is common, heavy tails", noise=heavy),
    Jobs("half is common, skewed", noise=skewed),
    Jobs("half is common, autocorrelated (0.9 from run to run)", memory=0.9),
    Jobs("half is common, autocorrelated (0.5 from run to run)", memory=0.5),
    Jobs("half is common, a quarter of the rest is of the job", apart=0.25),
    Jobs("half is common, half of the rest is of the job", apart=0.5),
]


def duets(which: Jobs, loss: float, count: int, seed: int, peers: int = 1):
    """Verdicts of figures in duets, and of the same values as those of two sets of sessions.

    :arg peers: figures that are compared together, of which the first loses.
    """
    chance = np.random.default_rng(seed)
    found, separate = [], []
    for part in range(0, count, 4_000):
        rows = min(4_000, count - part)
        first, second = which.pairs(chance, rows)
        lossy = np.arange(rows) % peers == 0
        second[lossy] += np.log1p(-loss)
        size = rows if peers == 1 else peers
        groups = np.arange(rows) if peers == 1 else np.zeros(peers)
        for start in range(0, rows, size):
            sides = [side[start : start + size] for side in (first, second)]
            as_sessions = judge.estimate(
                *(side.mean(2) for side in sides), np.empty((size, 0)), groups
            )
            paired = duet.estimate(sides[1] - sides[0], groups)
            for estimated, kept in ((paired, found), (as_sessions, separate)):
                ones = np.ones(size)
                adjusted = estimated.p if peers == 1 else None
                kept.append(judge.verdicts(estimated, ones, 0 * ones, WITHIN, LOSS, adjusted))
    return np.concatenate(found), np.concatenate(separate)


def student(size: float, sessions: int) -> float:
    """The same for the best rule that has to learn the noise from the same sessions (Student's)."""
    df = 2 * sessions - 2
    shift = -np.log1p(-LOSS) / (size * np.sqrt(2 / sessions))
    return float(stats.nct.sf(stats.t.isf(FALSE, df), df, shift))


HEAD = f"""# Before and after: false alarms and power

Rendered by `make detection`; do not edit.

How often `plumbline compare` raises a false alarm, and how often it finds a loss. For example, the
first row of the first table is for 2 % normal noise and five sessions a side without a past: its
column *healthy: no-go* has the share of the healthy figures that are called regressed.

Simulated comparisons ({FIGURES:,} figures for each number, seeded), judged by the code that judges
real sessions (`plumbline.analysis.compare.judge`) with the default options: a difference below
2 % counts as unchanged, a loss of 5 % must not be missed. A session is one value. *No-go* is the
verdict `regressed`, *inconclusive* is `too little data`, *go* is `unchanged` or `improved`.

*Best possible* is an upper limit for every rule that calls one healthy figure in a thousand
regressed: it knows the noise and its distribution exactly (Neyman and Pearson's bound; for normal
noise). At 2 % noise and five sessions a side that is {oracle(0.02, 5, 0):.1%},
and {student(0.02, 5):.1%} for one that has to estimate the noise from the same ten values
(Student's): **no method finds 95 % from ten values of one figure.** That takes more
information: a past of the same level, more figures with the same loss, or more sessions. Five a
side alone can only avoid passing a loss as go.

## One figure, by itself

"""
MIDDLE = """

*Autocorrelated*: each night's offset keeps half of the last one's, which ten values cannot
distinguish from a change. With a past of 30 sessions fewer losses pass as go, but there are as many
false alarms. *Skewed*: rare large losses, which no rule knows in advance.

## Many figures in one comparison

Five sessions a side, normal noise (of 2 % by default), no past. The estimated noise of each
figure is shrunk toward that of its peers, so one of twenty is found more often here than
one alone. *Any false* is the share of the comparisons in which some healthy figure is called
regressed.

"""
_VERDICTS = ["no-go", "inconclusive", "go"]
DUET_TEXT = """

## Duets

Five jobs, in each of which both sides of a duet (`plumbline compare --duet`) ran in turns. The
value of a side varies by 2 % from job to job, as that of a session in the first table. A part of
that variance is *common* to both sides of a job: its nodes, its hour and its neighbours. The rest
is of the single runs. It is set to be as large in the mean of a job whatever the number of samples:
more samples only show better how large it is. *As sessions* is the same values judged without the
pairing, as by `plumbline compare`. *Best possible* knows the noise of the differences.

"""
DUET_END = """

If part of the rest is *of the job*, a side is faster in one job and slower in the next by more than
its runs explain, as when the two sides react differently to a node. The pairs do not show this, and
with five jobs it is found only if it is large; the false alarms rise to the last rows' values.
*Autocorrelated* common noise changes between the two runs of a pair, and does not cancel as far.

Twenty figures of one check, whose jobs vary as their peers' (one of them loses):

"""
DUET_HEADS = ["noise", "samples", *(f"healthy: {name}" for name in _VERDICTS),
              *(f"5 % lost: {name}" for name in _VERDICTS), "as sessions: healthy no-go",
              "as sessions: 5 % lost no-go", "best possible no-go"]  # fmt: skip
HEADS = ["noise", "sessions a side", "past", *(f"healthy: {name}" for name in _VERDICTS),
         *(f"5 % lost: {name}" for name in _VERDICTS), "best possible no-go"]  # fmt: skip
FAMILY_HEADS = ["what", *(f"lost: {name}" for name in _VERDICTS), "any false",
                *(f"healthy: {name}" for name in _VERDICTS), "healthy: any false"]  # fmt: skip


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns but the first hold numbers."""
    return markdown_table(heads, rows, heads[1:])


def page(count: int) -> str:
    """The page's text.

    :arg count: figures for each number.
    """
    kinds = [("normal", gaussian), ("lognormal", lognormal), ("outliers", outliers),
             ("heavy tails", heavy), ("skewed", skewed),
             ("autocorrelated", autocorrelated)]  # fmt: skip
    plans = [(name, kind, 0.02, 5, past) for name, kind in kinds for past in (0, 30)]
    plans += [("normal", gaussian, 0.02, 5, 60), ("normal", gaussian, 0.02, 7, 0),
              ("normal", gaussian, 0.02, 10, 0), ("normal", gaussian, 0.02, 15, 0)]  # fmt: skip
    plans += [("normal", gaussian, size, 5, past) for size in (0.01, 0.03) for past in (0, 30)]
    single = []
    for seed, (name, kind, size, sessions, past) in enumerate(plans):
        found = [shares(alone(kind, size, sessions, past, loss, count, seed)) for loss in (0, LOSS)]
        best = f"{oracle(size, sessions, past):.1%}" if kind in (gaussian, lognormal) else "—"
        cells = [f"{name} {size:.0%}", str(sessions), str(past), f"{found[0][0]:.3%}"]
        cells += [f"{share:.1%}" for share in (*found[0][1:], *found[1])]
        single.append([*cells, best])
    many = []
    for seed, which in enumerate(FAMILIES, 100):
        comparisons = max(count // 4 // which.figures, 1)
        found, alarms = family(which, LOSS, comparisons, seed)
        healthy, quiet = family(which, 0.0, 4 * comparisons, seed)
        some = "—" if which.lossy == 1 else f"{alarms:.2%}"
        cells = [which.name, *(f"{share:.1%}" for share in found), some, f"{healthy[0]:.3%}"]
        cells += [f"{share:.1%}" for share in healthy[1:]]
        many.append([*cells, f"{quiet:.2%}"])
    return f"{HEAD}{table(HEADS, single)}{MIDDLE}{table(FAMILY_HEADS, many)}{duet_section(count)}\n"


def duet_section(count: int) -> str:
    """The page's text about duets.

    :arg count: figures for each number.
    """
    paired = [_duet_row(which, count, seed) for seed, which in enumerate(DUETS, 200)]
    peers = [which for which in DUETS if which.noise is lognormal and which.samples == 6]
    of_peers = [_duet_row(which, count, seed, 20) for seed, which in enumerate(peers, 300)]
    return f"{DUET_TEXT}{table(DUET_HEADS, paired)}{DUET_END}{table(DUET_HEADS, of_peers)}"


def _duet_row(which: Jobs, count: int, seed: int, peers: int = 1) -> list[str]:
    """A row of a table of duets."""
    healthy, sound = duets(which, 0.0, count, seed, peers)
    lost, seen = (verdicts[::peers] for verdicts in duets(which, LOSS, count, seed, peers))
    cells = [which.name, str(which.samples), f"{shares(healthy)[0]:.3%}"]
    cells += [f"{share:.1%}" for share in (*shares(healthy)[1:], *shares(lost))]
    best = which.best()
    cells += [f"{shares(sound)[0]:.3%}", f"{shares(seen)[0]:.1%}"]
    return [*cells, "—" if np.isnan(best) or peers > 1 else f"{best:.1%}"]


if __name__ == "__main__":
    options = arguments(__doc__).parse_args()
    publish("compare-power", page(FIGURES), options.write)
