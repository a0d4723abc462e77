"""What each constant of ``plumbline trend`` decides: it is multiplied by 2/3 and by 3/2.

``python -m bench.constants`` in ``tests/`` prints the table; ``--write`` also writes
``docs/trend-constants.md``. Its seeds, from 310,000 on, are for tuning: what is reached is measured
with others, by ``bench.detection``.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import nights
import numpy as np
from nights import Nights, Plan
from plumbline.analysis import trend
from plumbline.analysis.trend import episodes, partition
from tabulate import tabulate

from bench import arguments, cells, publish
from bench.detection import (
    after_step,
    beyond_upgrades,
    is_called,
    known,
    loss_is_known,
    of_last_loss,
    unconfirmed,
)
from bench.methods import Report, judged, reports

PAGE = Path(__file__).with_suffix(".md")
SEED = 310_000
FACTORS = 2 / 3, 3 / 2
#: Standard errors by which a row differs beyond chance: of a thousand differences about three do by
#: chance alone.
BEYOND = 3.0
#: Constants that decide nothing: a guard against divisions by zero, and the size of a group.
GUARDS = "TINY", "TOGETHER"
#: Constants that were chosen for speed. They are measured, but not among those that were tuned.
SPEED = "KEPT", "EVERY"


# -- the constants ---------------------------------------------------------------------------------


def _named(node: ast.stmt) -> str:
    """The constant that a statement assigns to; empty if it is no such statement."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return name if name.isupper() else ""
    return ""


def _parsed(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"), str(module.__file__))


def constants() -> dict[str, object]:
    """The constants with a value of their own; those that are derived have a formula."""
    found: dict[str, object] = {}
    for module in (partition, episodes):
        for node in _parsed(module).body:
            if (name := _named(node)) and isinstance(node, ast.Assign):
                try:
                    found[name] = ast.literal_eval(node.value)
                except ValueError:
                    continue
    return found


def tuned() -> list[str]:
    return [name for name in constants() if name not in (*GUARDS, *SPEED)]


def load(name: str = "", value: object = None) -> None:
    """Load trend anew with another value of one constant, or as it is. What is derived from the
    constant follows."""
    for module in (partition, episodes, trend):
        tree = _parsed(module)
        for node in tree.body:
            if name and _named(node) == name and isinstance(node, ast.Assign):
                node.value = ast.parse(repr(value), mode="eval").body
        exec(compile(tree, str(module.__file__), "exec"), vars(module))


@dataclass(frozen=True)
class Variant:
    """One row: a constant with another value, or none."""

    name: str = ""
    label: str = "as they are"
    value: object = None


def variants(names: Sequence[str]) -> Iterator[Variant]:
    """The rows of these constants, after that of all as they are."""
    yield Variant()
    for name in names:
        value = constants()[name]
        for factor in FACTORS:
            if name == "NOISES":
                pairs = partition.NOISES
                by = f"x {factor:.2f}"
                yield Variant(name, f"variances {by}", tuple((m, s * factor) for m, s in pairs))
                longer = tuple((m ** (1 / factor) if m else m, s) for m, s in pairs)
                yield Variant(name, f"nights {by}", longer)
                continue
            changed = value * factor  # type: ignore[operator]
            changed = round(changed) if isinstance(value, int) else round(changed, 6)
            yield Variant(name, f"{value:g} → {changed:g}", changed)


# -- the series ------------------------------------------------------------------------------------


def _confirmed(judgement: trend.SeriesJudgement) -> list[Report]:
    return [report for report in reports(judgement) if report.confirmed]


Rows = Callable[[Nights], list[list[float]]]


def each(of: Callable[..., list[float]]) -> Rows:
    """The values of each series, by its judgement, the start of its change, and its plan."""
    return lambda made: [
        of(one, start, made.plan) for one, start in zip(judged(made), made.start, strict=True)
    ]


def of_steps(judgement: trend.SeriesJudgement, start: int, plan: Plan) -> list[float]:
    night, _ = after_step(_confirmed(judgement), start, plan.size)
    return [night < 1, night < 14]


of_flat = each(lambda one, *_: [len(_confirmed(one)), unconfirmed(one)])
of_autocorrelated = each(lambda one, *_: [len(_confirmed(one))])
of_several = each(lambda one, start, _: [of_last_loss(_confirmed(one), start)])
of_kind = each(lambda one, start, plan: [is_called(_confirmed(one), plan.change, plan, start)])
of_quiet = each(lambda one, start, _: [loss_is_known(reports(one), start, confirmed=True)])


def of_upgrades(made: Nights) -> list[list[float]]:
    every = zip(judged(made), made.starts, strict=True)
    return [[beyond_upgrades(_confirmed(one), starts)] for one, starts in every]


@dataclass(frozen=True)
class Group:
    """Cells that are measured together.

    :ivar of: the values of each series, one for each column. :ivar heads: of the columns.
    :ivar rate: they are per 1,000 series-nights, and otherwise a share in per cent.
    :ivar times: multiple of the number of series of a cell.
    """

    heads: tuple[str, ...]
    plans: list[Plan]
    of: Rows
    rate: bool = False
    times: int = 1


def groups() -> list[Group]:
    flat, steps = cells.alarm_cells(), cells.step_cells()
    # The hard ones: losses of 5 % in noise of 2 %, one distance of each row in turn.
    several = [rows for name, rows in cells.several_cells().items()
               if "-5 %" in name and "noise 2 %" in name]  # fmt: skip
    change = cells.PLAIN.but(change="transient", size=-0.10)
    drift = cells.PLAIN.but(change="drift", over=90, nights=240, latest=80)
    quiet = cells.quiet_cells()
    return [
        Group(
            ("false alarms", "single nights taken back"),
            [flat[f"{kind} {level} %"] for kind in ("gaussian", "outlier") for level in (1, 2)]
            + [flat["heavy tails 2 %"]],
            of_flat, rate=True, times=2,
        ),
        Group(
            ("false alarms, autocorrelated noise",),
            list(cells.AUTOCORRELATED.values()), of_autocorrelated, rate=True, times=2,
        ),
        Group(
            ("false alarms beside upgrades",),
            [plan for name, plan in cells.upgrade_cells().items() if "2 %" in name],
            of_upgrades, rate=True,
        ),
        Group(
            ("steps, first night", "steps, 14 nights"),
            [steps[name] for name in ("5% step, gaussian 1 %", "5% step, gaussian 2 %",
                                      "5% step, outlier 2 %", "2% step, gaussian 1 %",
                                      "10% step, gaussian 2 %", "10% step, outlier 2 %")],
            each(of_steps),
        ),
        Group(
            ("last loss of several changes",),
            [rows[number % len(rows)] for number, rows in enumerate(several)], of_several,
        ),
        Group(
            ("transients",),
            [change, change.but(level=0.02), change.but(level=0.02, noise="outlier")], of_kind,
        ),
        Group(
            ("drifts",),
            [drift.but(size=-0.05), drift.but(size=-0.10), drift.but(size=-0.10, level=0.02)],
            of_kind,
        ),
        Group(
            ("quiet losses, second night",),
            [quiet["5 % loss, noise 0.5 %, all digits"], quiet["5 % loss, noise 0.1 %, 3 digits"]],
            lambda made: of_quiet(known(made, 2)),
        ),
    ]  # fmt: skip


def measured(task: tuple[Variant, int]) -> list[np.ndarray]:
    """The values of a row: for each column those of all its series."""
    variant, count = task
    load(variant.name, variant.value)
    columns: list[np.ndarray] = []
    for number, group in enumerate(groups()):
        made = [nights.make(plan, count * group.times, SEED + 100 * number + cell)
                for cell, plan in enumerate(group.plans)]  # fmt: skip
        values = np.concatenate([np.array(group.of(one), dtype=float) for one in made])
        scale = 1000 / made[0].plan.nights if group.rate else 100
        columns += list(scale * values.T)
    load()
    return columns


# -- the page --------------------------------------------------------------------------------------


def differs(values: np.ndarray, first: np.ndarray) -> bool:
    """Whether the values of the same series differ beyond chance."""
    differences = values - first
    return abs(differences.sum()) > BEYOND * np.sqrt((differences**2).sum())


def table(rows: dict[Variant, list[np.ndarray]]) -> tuple[str, list[str]]:
    """The rows as Markdown, and the constants that decide something."""
    first = rows[Variant()]
    heads = [head for group in groups() for head in group.heads]
    rates = [group.rate for group in groups() for _ in group.heads]
    lines, decide = [], []
    for variant, columns in rows.items():
        cells = []
        for values, as_is, rate in zip(columns, first, rates, strict=True):
            text = f"{values.mean():.2f}" if rate else f"{values.mean():.1f}"
            beyond = differs(values, as_is)
            cells.append(f"**{text}**" if beyond else text)
            if beyond and variant.name not in decide:
                decide.append(variant.name)
        lines.append([f"`{variant.name}`" if variant.name else "", variant.label, *cells])
    return tabulate(lines, ["", "", *heads], tablefmt="github", disable_numparse=True), decide


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--series", type=int, default=40, help="in a cell")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these constants")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    if given.write and given.only:
        parser.error("--write is with all constants")
    names = given.only or [name for name in constants() if name not in GUARDS]
    tasks = list(variants(names))
    began = time.perf_counter()
    found = {}
    with ProcessPoolExecutor(given.processes) as pool:
        work = [(variant, given.series) for variant in tasks]
        for variant, columns in zip(tasks, pool.map(measured, work), strict=True):
            found[variant] = columns
            means = " ".join(f"{values.mean():.2f}" for values in columns)
            done = f"{len(found)} of {len(tasks)}, {time.perf_counter() - began:.0f} s"
            line = f"{done}: {variant.name} {variant.label}: {means}"
            print(line, file=sys.stderr, flush=True)
    rows, decide = table(found)
    idle = [f"`{name}`" for name in names if name not in decide]
    page = PAGE.read_text(encoding="utf-8").format(
        rows=rows,
        tuned=len(tuned()),
        date=time.strftime("%Y-%m-%d"),
        count=given.series,
        seed=f"{SEED:,}",
        beyond=f"{BEYOND:g}",
        idle=", ".join(idle) or "none",
    )
    publish("trend-constants", page, given.write)


if __name__ == "__main__":
    main()
