"""Weekly screening of a machine of 9,408 nodes, simulated: what it covers, and in how many
node-hours.

    python -m bench.sweep   # in tests/; prints the page, --write keeps it

Seeded. Time passes in steps of five minutes. User jobs wait in a queue that is never empty, the
largest ones first, and others are backfilled (EASY: a job starts early if that does not delay the
first one, by the requested times). Slurm's default takes the idle nodes with the lowest numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from bench import arguments, publish
from bench.compare import table

#: Nodes of Frontier.
NODES = 9408
#: Steps of an hour, and of a day.
HOUR = 12
DAY = 24 * HOUR
#: Days before anything is counted, and days that are.
WARM, DAYS = 7, 28
#: Bins of Frontier's queue: fewest and most nodes, longest hours; and the share of the node-hours.
BINS = [(5645, 9408, 12, 0.15), (1882, 5644, 12, 0.25), (184, 1881, 12, 0.35),
        (92, 183, 6, 0.10), (1, 91, 2, 0.15)]  # fmt: skip
#: Shortest run time, as a share of the requested one; it is uniform up to all of it.
SHORTEST = 0.3
#: Jobs that wait, all of which are looked at for backfill.
QUEUE = 60
#: Age from which a node is due, in days, so that none is older than seven after a job of 12 hours.
DUE = 6.5


@dataclass(frozen=True)
class Way:
    """A way to screen.

    :ivar enforced: a due node is screened as soon as its job ends, before any other job.
    :ivar ledger: only nodes that are due are screened.
    :ivar most: most screening jobs at once.
    """

    name: str
    enforced: bool = False
    ledger: bool = False
    most: int = NODES


WAYS = [
    Way("none", most=0),
    Way("enforced weekly", enforced=True, ledger=True),
    Way("idle nodes, only those that are due", ledger=True),
    Way("idle nodes, 100 jobs at once", most=100),
    Way("idle nodes, 500 jobs at once", most=500),
    Way("all idle nodes, again and again"),
]


@dataclass
class Outcome:
    """What a way achieved.

    :ivar hours: node-hours of screening a week. :ivar used: share of the machine that user jobs
        had.
    :ivar covered: share of the nodes that were screened within seven days, mean over all days.
    :ivar oldest: oldest age of a node, in days; infinite if one was never screened.
    :ivar days: until 99 % of the nodes were screened; infinite if that was never so.
    """

    hours: float
    used: float
    covered: float
    oldest: float
    days: float


class Machine:
    """The machine and its queue."""

    def __init__(self, seed: int):
        self.chance = np.random.default_rng(seed)
        self.free_at = np.zeros(NODES, int)
        self.limit_at = np.zeros(NODES, int)
        self.waiting: deque[tuple[int, int, int]] = deque()
        weights = np.array([share / (np.sqrt(low * high) * hours) for low, high, hours, share
                            in BINS])  # fmt: skip
        self.odds = weights / weights.sum()
        self.used = 0

    def submit(self) -> None:
        """Fill the queue; the larger bins have priority, as OLCF's aging gives it."""
        while len(self.waiting) < QUEUE:
            low, high, hours, _ = BINS[self.chance.choice(len(BINS), p=self.odds)]
            size = int(np.exp(self.chance.uniform(np.log(low), np.log(high + 1))))
            limit = max(int(hours * HOUR * self.chance.uniform(0.25, 1)), 2)
            steps = max(int(limit * self.chance.uniform(SHORTEST, 1)), 1)
            (self.waiting.appendleft if low > 1881 and not self._large() else self.waiting.append)(
                (min(size, NODES), limit, steps))  # fmt: skip

    def _large(self) -> bool:
        return bool(self.waiting) and self.waiting[0][0] > 1881

    def start(self, now: int, size: int, limit: int, steps: int) -> None:
        nodes = np.flatnonzero(self.free_at <= now)[:size]
        self.free_at[nodes], self.limit_at[nodes] = now + steps, now + limit
        self.used += size * steps

    def schedule(self, now: int) -> int:
        """Start what can start. Return until when the nodes that are idle then stay so."""
        self.submit()
        idle = int((self.free_at <= now).sum())
        while self.waiting and self.waiting[0][0] <= idle:
            idle -= self.waiting[0][0]
            self.start(now, *self.waiting.popleft())
        self.submit()
        first = self.waiting[0][0]
        ends = np.sort(np.where(self.free_at <= now, now, np.maximum(self.limit_at, now + 1)))
        shadow = int(ends[first - 1])
        spare = int((ends <= shadow).sum()) - first
        for job in [*self.waiting][1:]:
            size, limit, _ = job
            if size <= idle and (now + limit <= shadow or size <= spare):
                if now + limit > shadow:
                    spare -= size
                idle -= size
                self.waiting.remove(job)
                self.start(now, *job)
        return shadow


def simulate(way: Way, minutes: int, seed: int) -> Outcome:
    """Screen for some weeks, with jobs of so many minutes on one node each."""
    machine, steps = Machine(seed), max(minutes // 5, 1)
    # A node's last screening; at first, evenly spread over a week, or never.
    last = np.full(NODES, -(10**9))
    if way.enforced:
        last = machine.chance.permutation(np.linspace(-DUE * DAY, 0, NODES).astype(int))
    ever = np.zeros(NODES, bool)
    ends = np.zeros(NODES, int)
    hours, covered, oldest, until = 0, [], 0.0, np.inf
    total, begin = (WARM + DAYS) * DAY, WARM * DAY
    for now in range(total):
        if now == begin:
            machine.used, hours = 0, 0
            ever[:] = False
        due = now - last >= DUE * DAY
        if way.enforced:
            hours += _screen(machine, now, steps, due, way.most, last, ever, ends)
            machine.schedule(now)
        else:
            shadow = machine.schedule(now)
            if now + steps <= shadow and way.most:
                room = way.most - int((ends > now).sum())
                wanted = due if way.ledger else np.ones(NODES, bool)
                hours += _screen(machine, now, steps, wanted, room, last, ever, ends)
        if now >= begin and ever.mean() >= 0.99 and until == np.inf:
            until = (now - begin) / DAY
        if now >= begin and now % DAY == 0:
            age = (now - last) / DAY
            covered.append(float((age <= 7).mean()))
            oldest = max(oldest, float(age.max()))
    return Outcome(
        hours / HOUR / (DAYS / 7),
        machine.used / (DAYS * DAY * NODES),
        float(np.mean(covered)),
        oldest if oldest < 1000 else np.inf,
        until,
    )


def _screen(
    machine: Machine,
    now: int,
    steps: int,
    wanted: np.ndarray,
    room: int,
    last: np.ndarray,
    ever: np.ndarray,
    ends: np.ndarray,
) -> int:
    """Start screening jobs on idle nodes. Return their node-steps."""
    nodes = np.flatnonzero(wanted & (machine.free_at <= now))[: max(room, 0)]
    machine.free_at[nodes] = machine.limit_at[nodes] = ends[nodes] = now + steps
    last[nodes], ever[nodes] = now + steps, True
    return len(nodes) * steps


#: Minutes of a screening job, and the seed.
MINUTES, SEED = (10, 30), 20261124

HEAD = f"""# What screening every node costs

Rendered by `make detection`; do not edit.

How many node-hours a week it takes to screen each of {NODES:,} nodes (Frontier's number) once a
week, and what is covered. For example, the second line of the first table is a sweep that measures
each node as soon as it is {DUE} days old and its job has ended: `plumbline sweep --older-than 6d
--budget 2h`, every two hours.

"""
MIDDLE = f"""
- *Screening* is the node-hours of screening a week, and *factor* that over those of the enforced
  weekly screen.
- *Users* is the share of the machine that user jobs had. By chance it differs by some tenths of a
  percent: each line is one simulation.
- *Within 7 days* is the share of the nodes whose last screening is at most seven days old, mean
  over all days; *oldest* is the largest age of a node on any day, and *never* if one had not been
  screened at all.
- *Days to 99 %* is how long it took to screen 99 % of the nodes once.

Idle nodes are always the same ones: Slurm takes the idle nodes with the lowest numbers first, so
that screening jobs that ask for any node meet some nodes again and again, and others hardly ever.
With the times of the last screening they cost no more than enforced ones, but a few nodes are
never idle when they are due. If they are enforced, none is older than a week.

ORNL reports from Frontier that a first strategy, which scavenged available compute time, consumed
more than ten times the resources of the second one, which enforced a weekly screen of each node
([Hagerty, Webb, Melesse Vergara and Ezell 2023](https://doi.org/10.1145/3624062.3624134),
abstract). Here the factor of screening idle nodes without these times is {{low:.1f}} to
{{high:.1f}}: it grows with the number of jobs at once, and where it is small, many nodes are
missed. The paper itself was not available for this page. How long its screen takes, and how
many jobs it had at once, is not known here, so this is no reproduction of it.

## Assumptions

- Bins of nodes and hours as in the [Frontier user
  guide](https://docs.olcf.ornl.gov/systems/frontier_user_guide.html#job-priority-by-node-count)
  (July 2026); within a bin sizes are log-uniform, requested times uniform from a quarter of the
  most, run times from {SHORTEST:.0%} of the requested. The shares of the node-hours of the bins,
  {", ".join(f"{share:.0%}" for *_, share in BINS)}, are assumed.
- {QUEUE} user jobs always wait; one of the two largest bins is first in the queue, the others are
  in order of submission. Backfill is EASY, by the requested times. Nothing fails, and no node is
  down. {WARM} days pass before {DAYS} are counted.
- A screening job takes its node for 10 or 30 minutes, everything included. `plumbline sweep
  --budget` plans with what it took at your site.
- Enforced ones have priority over user jobs on their node; the others start only if they end
  before the first job of the queue can start.
"""
HEADS = ["way", "screening", "factor", "users", "within 7 days", "oldest, days", "days to 99 %"]


def page() -> str:
    """The page's text."""
    parts, factors = [], []
    for minutes in MINUTES:
        found = {way.name: simulate(way, minutes, SEED) for way in WAYS}
        usual = found["enforced weekly"].hours
        factors += [found[way.name].hours / usual for way in WAYS if way.most and not way.ledger]
        rows = [
            [name, f"{one.hours:,.0f}", f"{one.hours / usual:.1f}", f"{one.used:.2%}",
             f"{one.covered:.2%}", _days(one.oldest), _days(one.days)]
            for name, one in found.items()
        ]  # fmt: skip
        parts.append(f"## Screening jobs of {minutes} minutes\n\n{table(HEADS, rows)}\n")
    middle = MIDDLE.format(low=min(factors), high=max(factors))
    return HEAD + "\n".join(parts) + middle


def _days(value: float) -> str:
    return "never" if np.isinf(value) else f"{value:.1f}"


if __name__ == "__main__":
    options = arguments(__doc__).parse_args()
    publish("sweep-cost", page(), options.write)
