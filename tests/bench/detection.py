"""How well changes are found in synthetic nightly series, night by night, by ours and by others.

``python -m bench.detection`` in ``tests/`` prints the tables; ``--write`` also writes
``docs/detection.md``, and ``--keep`` takes Otava's results from that page: they depend on the
series alone, and are most of the time. It is refused if that page has another version of Otava, or
if KernelCPD, which is measured anew, differs anywhere from it: then the series are others, or what
is counted. Seeds from 460,000 on are used nowhere else: nothing was tuned to them.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import nights
import numpy as np
import oracle
import ruptures
import scipy
from nights import Plan
from plumbline.analysis import trend
from tabulate import tabulate

from bench import BIN, DOCS, arguments, publish
from bench.cells import (
    NOISES,
    PLAIN,
    YEAR,
    aim_cells,
    alarm_cells,
    quiet_cells,
    several_cells,
    step_cells,
    upgrade_cells,
)
from bench.methods import KERNEL, METHODS, OURS, SLOW, Report, judged, otava_version, run

PAGE = Path(__file__).with_suffix(".md")
SEED = 460_000
#: Series of a cell that the oracles judge.
ORACLE = 2000
#: Series of a cell with a change, as a share of those of one without.
STEPS = 0.4
#: Beside the methods in the table of false alarms.
BACK = "of one night, taken back"
#: Beside the methods in the table of several changes.
ORACLES = {
    "oracle": oracle.last_loss_found_by,
    "oracle beside autocorrelated noise": oracle.last_loss_distinguished,
}
#: Kinds of cell whose tables are without the wider bounds.
NARROW = "several", "upgrades", "quiet"


def columns(what: str) -> list[str]:
    """What is in the table of that kind of cell."""
    if what in NARROW:
        narrow = [method for method in METHODS if method != "ReFrame, ±10 %"]
        return [*narrow, *ORACLES] if what == "several" else narrow
    return [*METHODS, BACK] if what == "alarms" else [*METHODS]


def unconfirmed(judgement: trend.SeriesJudgement) -> int:
    """Return the number of single nights that were reported and not confirmed."""
    return len(judgement.outliers) + sum(not f.confirmed for f in judgement.changes)


def taken_back(plan: Plan, series: int, seed: int) -> float:
    """Return our single nights that were reported and not confirmed, per 1,000 series-nights."""
    made = nights.make(plan, series, seed)
    return 1000 * sum(map(unconfirmed, judged(made))) / made.values.size


def alarms(method: str, plan: Plan, count: int, seed: int) -> float:
    """Findings of any kind per 1,000 series-nights, where nothing changes."""
    made = nights.make(plan, count, seed)
    return 1000 * sum(map(len, run(method, made))) / made.values.size


def after_step(reports: list[Report], start: int, size: float) -> tuple[int, bool]:
    """Nights until a step is reported as lasting, in the right direction (a million if it is not),
    and whether it is reported as a drift."""
    right = [t for t in reports if t.size * size > 0 and t.night >= start > t.start - 15]
    first = min((t.night - start for t in right if t.kind == "lasting"), default=10**6)
    return first, any(t.kind == "drift" for t in right)


def found_by(method: str, plan: Plan, count: int, seed: int, *within: int) -> list[float]:
    """Share of the steps reported as lasting, in the right direction, in the first so many changed
    nights; and, last, of those reported as a drift instead."""
    made = nights.make(plan, count, seed)
    hits = np.zeros(len(within) + 1)
    for reports, start in zip(run(method, made), made.start, strict=True):
        first, drift = after_step(reports, start, plan.size)
        hits += [*(first < n for n in within), drift]
    return list(hits / count)


def is_called(reports: list[Report], kind: str, plan: Plan, start: int) -> bool:
    """Whether a finding is of that kind, over the change, and in the right direction."""
    last = start + plan.over + 30
    return any(t.kind == kind and t.size * plan.size > 0 and start - 5 <= t.night <= last
               for t in reports)  # fmt: skip


def called(method: str, plan: Plan, count: int, seed: int, kind: str) -> float:
    """Share of the series in which the change is called that."""
    made = nights.make(plan, count, seed)
    pairs = zip(run(method, made), made.start, strict=True)
    return sum(is_called(reports, kind, plan, start) for reports, start in pairs) / count


def of_last_loss(reports: list[Report], start: int) -> bool:
    """Whether a loss that began on that night, after other changes, is reported in its first 14
    nights: dated to within 5 nights, or as a drift that was recognized in them."""
    soon = range(start, start + 14)
    return any(
        t.kind in ("lasting", "drift") and t.size < 0 and (
            (t.night in soon and abs(t.start - start) <= 5)
            or (t.kind == "drift" and t.revised in soon)
        )
        for t in reports
    )  # fmt: skip


def last_losses(method: str, plans: Sequence[Plan], count: int, seed: int) -> list[float]:
    """Share of the series of each plan whose last loss is reported."""
    shares = []
    for number, plan in enumerate(plans):
        made = nights.make(plan, count, seed + 100 * number)
        hits = map(of_last_loss, run(method, made), made.start)
        shares.append(sum(hits) / count)
    return shares


def known(made: nights.Nights, count: int) -> nights.Nights:
    """The series as they are when so many nights of the last change are known."""
    later = np.arange(made.plan.nights) >= made.start[:, None] + count
    return replace(made, values=np.where(later, np.nan, made.values))


def loss_is_known(reports: list[Report], start: int, confirmed: bool) -> bool:
    """Whether a loss that began on that night is reported, and also as confirmed."""
    right = [t for t in reports if t.size < 0 and t.night >= start > t.start - 6]
    return any(t.confirmed or not confirmed for t in right)


def known_by(method: str, plan: Plan, count: int, seed: int) -> list[float]:
    """Share of the losses reported when their first night is known, also unconfirmed, and reported
    as confirmed when the second is."""
    made = nights.make(plan, count, seed)
    shares = []
    for many in (1, 2):
        pairs = zip(METHODS[method](known(made, many)), made.start, strict=True)
        shares.append(sum(loss_is_known(*pair, confirmed=many == 2) for pair in pairs) / count)
    return shares


def beyond_upgrades(reports: list[Report], starts: np.ndarray) -> int:
    """Number of the reports in a series with upgrades only that are false: all but the first one of
    each upgrade that says that the value went up."""
    up = [t for t in reports if t.size > 0 and t.kind != "transient"]
    # A drift begins before the upgrade that it was first reported for.
    dated = [t.night if t.kind == "drift" else min(t.start + 5, t.night) for t in up]
    return len(reports) - len(set(np.searchsorted(starts, dated, "right").tolist()) - {0})


def false_beside_upgrades(method: str, plan: Plan, count: int, seed: int) -> float:
    """False reports per 1,000 series-nights in series with upgrades only."""
    made = nights.make(plan, count, seed)
    return 1000 * sum(map(beyond_upgrades, run(method, made), made.starts)) / made.values.size


def _aim(task: tuple) -> str:
    """Ours, and for steps in gaussian noise the oracle's, in one cell of the table of the aims."""
    plan, count, seed = task
    if not plan.change:
        return f"{alarms(OURS, plan, count, seed):.3f}"
    parts = found_by(OURS, plan, count, seed, 1, 7, 14)[:3]
    results = " / ".join(f"{100 * x:.1f}" for x in parts)
    if plan.noise != "gaussian":
        return results
    best = " / ".join(f"{100 * x:.1f}" for x in oracle.found_by(plan, count, seed, 1, 7, 14))
    return f"{results} ({best})"


def aims(count: int) -> str:
    cells = aim_cells()
    tasks = [(base.but(**fields), count, SEED + 200 + 2 * number + (base is YEAR))
             for number, (_, fields) in enumerate(cells.values())
             for base in (PLAIN, YEAR)]  # fmt: skip
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(_aim, tasks))
    rows = [[name, aim, results[2 * n], results[2 * n + 1]]
            for n, (name, (aim, _)) in enumerate(cells.items())]  # fmt: skip
    heads = ["", "aim", "180 nights, change at 40 to 150", "365 nights, change at 100 to 300"]
    return tabulate(rows, heads, tablefmt="github", disable_numparse=True)


def small_steps(count: int, say: Callable[[str], None]) -> str:
    """Steps of 2 %, found by night 14, and false alarms of autocorrelated noise like them; and
    whether the oracle shows that both aims cannot be reached."""
    noise = oracle.Autocorrelated(size=1.0, memory=0.95)
    rows, beyond = [], []
    for name, base in (("180 nights", PLAIN), ("365 nights", YEAR)):
        step = base.but(change="step", size=-0.02)
        healthy = base.but(slow=step.level * noise.size, memory=noise.memory)
        (free,) = oracle.found_by(step, ORACLE, SEED + 300, 14)
        (bound,) = oracle.found_by(step, ORACLE, SEED + 300, 14, noise=noise)
        steps = found_by(OURS, step, count, SEED + 300, 14)
        false = alarms(OURS, healthy, count, SEED + 301)
        rows.append([name, f"{free:.1%}", f"{bound:.1%}", f"{steps[0]:.1%}", f"{false:.2f}"])
        say(str(rows[-1]))
        reach = "does not reach" if bound < 0.98 else "reaches"
        beyond.append(f"In series of {name} the second oracle {reach} 98 %.")
    heads = ["", "oracle without such noise", "oracle that keeps 0.5 under such noise",
             OURS, "its false alarms under such noise"]  # fmt: skip
    table = tabulate(rows, heads, tablefmt="github", disable_numparse=True)
    return "\n".join([table, "", *beyond])


#: Kind of cell -> what measures it.
MEASURES: dict[str, Callable] = {
    "alarms": alarms,
    "steps": lambda *cell: found_by(*cell, 1, 7, 14),
    "transient": lambda *cell: called(*cell, "transient"),
    "drift": lambda *cell: called(*cell, "drift"),
    "several": last_losses,
    "quiet": known_by,
    "upgrades": false_beside_upgrades,
}


def _cell(task: tuple) -> tuple:
    what, method, name, plan, count, seed = task
    if method == BACK:
        return what, method, name, taken_back(plan, count, seed)
    if method in ORACLES:
        shares = [ORACLES[method](one, ORACLE, seed, 14) for one in plan]
        return what, method, name, shares
    return what, method, name, MEASURES[what](method, plan, count, seed)


def kept(page: str, method: str) -> dict[tuple[str, str], str]:
    """The results of a method in the tables of a page: method and cell -> text."""
    found: dict[tuple[str, str], str] = {}
    heads: list[str] = []
    for line in page.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if not row or not heads:
            heads = row
            continue
        pairs = zip(heads, row, strict=False)
        found |= {(head, row[0]): cell for head, cell in pairs if head == method}
    return found


def changed(old: str, new: str) -> list[str]:
    """The rows in which KernelCPD, which depends on the series alone, is not as on the old page."""
    before, now = kept(old, KERNEL), kept(new, KERNEL)
    names = dict.fromkeys(name for _, name in (*before, *now))
    return [name for name in names if before.get((KERNEL, name)) != now.get((KERNEL, name))]


def value_of(what: str, text: str) -> float | list[float]:
    """What a cell of a table of that kind says."""
    numbers = [float(part.strip(" %")) for part in text.split("/")]
    if what in ("alarms", "upgrades"):
        return numbers[0]
    shares = [number / 100 for number in numbers]
    return shares[0] if what in ("transient", "drift") else shares


def measure(
    count: int, each: int, say: Callable[[str], None], known: dict[tuple[str, str], str]
) -> dict:
    """All cells.

    :arg each: series of a cell of several changes, of upgrades, and of quiet series.
    :arg known: results that are not measured again.
    """
    found: dict = {}
    tasks = []

    def add(what: str, cells: dict, series: float, seed: int = SEED) -> None:
        few = (count * STEPS if what in NARROW else series) / 5
        for number, (name, plan) in enumerate(cells.items()):
            for method in columns(what):
                if (method, name) in known:
                    found[what, method, name] = value_of(what, known[method, name])
                    continue
                part = max(1, int(few if method in SLOW else series))
                tasks.append((what, method, name, plan, part, seed + number))

    transients = {
        f"{size:.0%} transient, {kind} {level} %": PLAIN.but(
            noise=kind, level=level / 100, change="transient", size=-size
        )
        for size, kind, level in [
            *((0.10, kind, level) for kind, level in NOISES if kind != "lognormal"),
            (0.05, "gaussian", 1), (0.07, "gaussian", 2),
        ]
    }  # fmt: skip
    drifts = {
        f"{size:.0%} over {over} nights, gaussian {level} %": PLAIN.but(
            level=level / 100, change="drift", size=-size, over=over, nights=240, latest=80
        )
        for size, over, level in [(0.05, 90, 1), (0.10, 90, 1), (0.10, 90, 2)]
    }
    add("alarms", alarm_cells(), count)
    add("steps", step_cells(), count * STEPS)
    retests = {
        f"10% step, {kind} {level} %, retest": PLAIN.but(
            noise=kind, level=level / 100, change="step", size=-0.10, retest=True
        )
        for kind, level in NOISES if kind != "lognormal"
    }  # fmt: skip
    add("steps", retests, count * STEPS)
    add("transient", transients, count * STEPS)
    add("drift", drifts, count * STEPS)
    add("several", several_cells(), each, SEED + 1000)
    add("upgrades", upgrade_cells(), each, SEED + 2000)
    add("quiet", quiet_cells(), each, SEED + 3000)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for what, method, name, value in pool.map(_cell, tasks):
            found[what, method, name] = value
            say(f"{what}: {method}: {name}: {value}")
    return found


def speed(say: Callable[[str], None]) -> list[list]:
    """Seconds and memory of the command over files of so many series and nights."""
    rows = []
    for noise, series, count in (
        ("gaussian", 250, 365), ("gaussian", 500, 365), ("gaussian", 1000, 365),
        ("gaussian", 1000, 90), ("gaussian", 1000, 180), ("outlier", 1000, 365),
    ):  # fmt: skip
        made = nights.make(PLAIN.but(noise=noise, nights=count, gaps=0.03), series, SEED + 500)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "nights.csv")
            path.write_text("\n".join(nights.rows(made)) + "\n")
            command = [BIN / "plumbline", "trend", "--input", path, "--online"]
            began = time.perf_counter()
            quiet = subprocess.DEVNULL
            with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
                _, process.returncode, used = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - began
        # Of it and its workers: as many as cores.
        cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        rows.append([noise, series, count, f"{seconds:.1f}", f"{cpu:.1f}", f"{memory:.0f}"])
        say(str(rows[-1]))
    return rows


def verdict(reached: float, aim: float, most: bool = False) -> str:
    """Whether an aim, the least or the most, is met."""
    return "met" if (reached <= aim if most else reached >= aim) else "missed"


#: Aims for several changes: the mean over all cells, and the worst cell.
MEAN_AIM, WORST_AIM = 0.97, 0.90
#: Aim for series with upgrades only: false reports per 1,000 series-nights.
UPGRADES_AIM = 0.2


def of_kind(found: dict, what: str, method: str = OURS) -> list:
    """A method's results in all cells of a kind."""
    return [value for (w, by, _), value in found.items() if (w, by) == (what, method)]


def over_all(found: dict) -> str:
    """What is reached over all cells of several changes."""
    rows, methods = [], columns("several")
    for name, of, aim in (("mean", np.mean, MEAN_AIM), ("worst cell", min, WORST_AIM)):
        reached = [float(of(np.concatenate(of_kind(found, "several", m)))) for m in methods]
        rows.append([name, f"{aim:.0%}", *(f"{x:.1%}, {verdict(x, aim)}" for x in reached)])
    heads = ["over all cells", "aim", *methods]
    return tabulate(rows, heads, tablefmt="github", disable_numparse=True)


def in_short(found: dict) -> dict[str, str]:
    """What `plumbline trend` reaches in quiet series, and beside upgrades."""
    first, second = np.min(of_kind(found, "quiet"), axis=0)
    false = float(np.mean(of_kind(found, "upgrades")))
    return {
        "quiet_reached": f"{first:.1%} on the first ({verdict(first, 1)}), "
        f"{second:.1%} on the second ({verdict(second, 1)})",
        "upgrades_reached": f"{false:.3f} ({verdict(false, UPGRADES_AIM, most=True)})",
    }


def tables(found: dict) -> dict[str, str]:
    """Each table as Markdown."""

    def table(what: str, form: Callable) -> str:
        heads = columns(what)
        names = list(dict.fromkeys(name for w, _, name in found if w == what))
        rows = [[name, *(form(found[what, method, name]) for method in heads)] for name in names]
        return tabulate(rows, ["", *heads], tablefmt="github", disable_numparse=True)

    def percents(shares: Sequence[float]) -> str:
        return " / ".join(f"{100 * x:.0f}" for x in shares)

    return {
        "alarms": table("alarms", lambda v: f"{v:.3f}"),
        "steps": table("steps", lambda v: " / ".join(f"{x:.1%}" for x in v[:3])),
        "transients": table("transient", lambda v: f"{v:.1%}"),
        "drifts": table("drift", lambda v: f"{v:.1%}"),
        "several_over_all": over_all(found),
        "several": table("several", percents),
        "quiet": table("quiet", percents),
        "upgrades": table("upgrades", lambda v: f"{v:.3f}"),
        **in_short(found),
    }


OTAVA_IS = "Apache Otava {}, with its defaults, judges all nights, and is counted in the same way."
NO_OTAVA = "Apache Otava was not installed (see `tests/bench/methods.py`), and has no column."


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--series", type=int, default=500, help="in a cell without a change")
    parser.add_argument(
        "--aims",
        type=int,
        default=500,
        help="in a cell of the aims, of several changes, of upgrades and of quiet series",
    )
    parser.add_argument("--keep", action="store_true", help="Otava as in that page")
    given = parser.parse_args()
    few = max(1, int(given.series * STEPS / 5))
    slowly, known = time.strftime("%Y-%m-%d"), {}
    if given.keep:
        old = (DOCS / "detection.md").read_text(encoding="utf-8")
        if f" {given.aims}\nseries, {few} for " not in old:
            parser.error("--keep is with as many series as that page has")
        if OTAVA_IS.format(otava_version()) not in old:
            parser.error("--keep is with the version of Otava that that page has")
        known, slowly = kept(old, "Otava"), re.findall(r"on (\d{4}-\d\d-\d\d)", old)[-1]

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    # First: a child's memory is at least what this process had when it began.
    heads = ["noise", "series", "nights", "seconds", "CPU seconds", "MiB"]
    fast = tabulate(speed(say), heads, tablefmt="github")
    reached = aims(given.aims)
    say(reached)
    apart = small_steps(given.aims, say)
    found = tables(measure(given.series, given.aims, say, known))
    page = PAGE.read_text(encoding="utf-8").format(
        **found,
        aims=reached,
        apart=apart,
        each=given.aims,
        few=few,
        slowly=slowly,
        otava=OTAVA_IS.format(otava_version()) if otava_version() else NO_OTAVA,
        upgrades_aim=UPGRADES_AIM,
        speed=fast,
        date=time.strftime("%Y-%m-%d"),
        python=platform.python_version(),
        numpy=np.__version__,
        scipy=scipy.__version__,
        ruptures=ruptures.__version__ if hasattr(ruptures, "__version__") else "",
        count=given.series,
        part=int(given.series * STEPS),
        seed=f"{SEED:,}",
        grain=1000 / (given.series * PLAIN.nights),
        cores=len(os.sched_getaffinity(0)),
    )
    if given.keep and (rows := changed(old, page)):
        print(page)
        raise SystemExit(f"not the series of Otava's results, run it without --keep: {rows}")
    publish("detection", page, given.write)


if __name__ == "__main__":
    main()
