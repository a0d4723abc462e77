"""The parts of a night: what each of them found, and how the page and JUnit XML have it."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import junitparser

from plumbline.analysis import compare, screen
from plumbline.analysis.compare import formats
from plumbline.analysis.trend import following
from plumbline.core import paths, suites
from plumbline.core.errors import Fault
from plumbline.core.text import counted, escaped, printable
from plumbline.history import retention
from plumbline.history.history import History, SessionRow
from plumbline.history.series import Selection
from plumbline.output import export, report
from plumbline.site import configuration

if TYPE_CHECKING:
    from plumbline.operate.nightly import Wanted

#: What is said of an exit code: of a night, and after a maintenance.
NIGHT = {0: "as it should be", 1: "faults found", 2: "could not tell"}
MAINTENANCE = {0: "go", 1: "no-go", 2: "not enough data"}
#: Lines of one kind that are shown.
_SHOWN = 5


@dataclass
class Part:
    """What one of them found.

    :ivar code: an exit code.
    :ivar told: in a line.
    :ivar page: in Markdown.
    :ivar suites: as JUnit XML has it, where there is more than this line.
    :ivar command: that reports all of it.
    :ivar skipped: whether there was nothing to judge, so that it did not pass either.
    :ivar unasserted: whether it is a session that passed, and was compared with nothing.
    """

    title: str
    code: int = 0
    told: str = ""
    page: str = ""
    suites: list[junitparser.TestSuite] = field(default_factory=list)
    command: str = ""
    skipped: bool = False
    unasserted: bool = False


def worst(codes: list[int]) -> int:
    """The exit code of a whole: what was found counts more than what could not be told."""
    return 1 if 1 in codes else 2 if any(codes) else 0


def plumbline() -> str:
    """The path of Plumbline's command."""
    return str(Path(sys.executable).with_name("plumbline"))


@contextlib.contextmanager
def _contained(part: Part) -> Iterator[Part]:
    """Lets a part that breaks report that, and take none of the others with it."""
    try:
        yield part
    except Exception as err:
        if isinstance(err, Fault):
            why = err.coded()
        else:
            # An error of Plumbline's own: the log has where.
            traceback.print_exc()
            why = f"an internal error: {type(err).__name__}: {err}"
        part.code = worst([part.code, 2])
        part.told = _joined(part.told, why)


def _joined(*told: str) -> str:
    return "; ".join(filter(None, told))


def _unread(history: History) -> str:
    """What of the history could not be read: how many places, and the first of them."""
    more = len(history.faults) - _SHOWN
    shown = [f"left out: {fault}" for fault in history.faults[:_SHOWN]]
    return "; ".join(shown) + (f" (and {counted(more, 'more place')})" if more > 0 else "")


def exported(title: str, name: str, code: int, errors: list[str]) -> Part:
    """What a session found, from its records.

    :arg code: that it ended with. :arg errors: what it wrote to standard error.
    """
    last = "; ".join(line.removeprefix("plumbline: ") for line in errors[-_SHOWN:])
    folder = paths.results() / "sessions" / name
    if not (folder / "plan.json").exists():
        return Part(title, 2, f"no test case was run: {last or 'the log says why'}")
    code = code if code in (0, 1, 2) else 2
    part = Part(title, code, f"{name}: {NIGHT[code]}" + (f": {last}" if errors and code else ""))
    if not (folder / "end.json").exists():
        part.code = code or 2
        part.told += (
            "; its end is not in its folder: look for lines `plumbline-record` in the log, and "
            "`plumbline history recover` them"
        )
    with _contained(part), History() as history:
        session = export.load(history, name)
        part.page = export.markdown(session)
        part.suites = [export.suite_of(session)]
        part.command = f"plumbline export {name} --format=markdown"
        part.unasserted = session.unasserted
    return part


def trend(system: str, name: str) -> Part:
    """What the night changed: a finding of tonight is a fault, an earlier one is shown."""
    part = Part("trend", command=f"plumbline trend --system={system}")
    with _contained(part), History() as history:
        select = Selection(system=system)
        found = following.of_history(history.series(select), online=False)
        fresh = _fresh(history, select, found, name) if found.bad else []
        lines, cases = [], []
        for row in sorted(found.bad, key=lambda row: row not in fresh):
            new = row in fresh
            told = f"{row.kind} of {row.size:+.1%} since {row.start}, found {row.night}"
            lines.append(f"- {'**new** ' if new else ''}{escaped(row.series)}: {told}")
            result = (
                junitparser.Failure(told, row.kind)
                if new
                else junitparser.Skipped(f"known: {told}", "known")
            )
            cases.append(suites.case(row.series, part.title, result))
        part.page, part.suites = "\n".join(lines), [suites.suite(part.title, cases)]
        counts = f"{len(fresh)} new, {len(found.bad) - len(fresh)} known and still on"
        part.told = _joined(counts, found.unjudged, _unread(history))
        # Too few nights are no fault of this one.
        part.code = 1 if fresh else 2 if history.faults else 0
        part.skipped = not found.judged and not part.code
    return part


def _fresh(
    history: History, select: Selection, found: following.Found, name: str
) -> list[following.FoundRow]:
    """The bad findings that were not there the night before: the newest of each series that has
    more of them."""
    tonight = configuration.began(paths.results() / "sessions" / name)
    midnight = tonight.replace(hour=0, minute=0, second=0, microsecond=0)
    names = {row.series for row in found.bad}
    earlier = history.series(replace(select, until=midnight))
    before = [series for series in earlier if following.name_of(series) in names]
    known = Counter(row.series for row in following.of_history(before, online=False).bad)
    fresh = []
    for row in sorted(found.bad, key=lambda row: str(row.start)):
        known[row.series] -= 1
        if known[row.series] < 0:
            fresh.append(row)
    return fresh


def _sides(wanted: Wanted, rows: list[SessionRow]) -> tuple[list[str], list[str]]:
    """The sessions before a maintenance and after: the newest nights, or what there is.

    :raises Fault: if there is none after.
    """
    after = [row for row in rows if row.extras.get("maintenance") == wanted.maintenance]
    if not after:
        raise Fault("no session after the maintenance could be read", code="history.damaged")
    earlier = [row for row in rows if row not in after and row.start < after[0].start]
    nights = [row for row in earlier if row.extras.get("run") == "nightly"] or earlier
    return [row.session for row in nights[-wanted.nights :]], [row.session for row in after]


def compared(wanted: Wanted, system: str) -> Part:
    """Before and after the maintenance."""
    part = Part("before and after")
    with _contained(part), History() as history:
        select = Selection(system=system)
        before, after = map(",".join, _sides(wanted, history.sessions(select)))
        part.page = (
            f"Three sessions before and three after are the least, five of each are better; each "
            f"counts once. Before count those of `plumbline nightly` (all others of the system "
            f"where there is none), after those with `--maintenance={wanted.maintenance}`; and of "
            f"both only the test cases that both measured: `--mode={wanted.mode}` after, so with "
            f"its tags before too."
        )
        if not before:
            part.code = 2
            part.told = "there is no session before the maintenance to compare it with"
            return part
        found = compare.compare_sessions(history, select, before, after, untold=wanted.untold / 100)
        part.code = found.exit_code or (2 if history.faults else 0)
        page = formats.markdown(found)
        part.page = f"{part.page}\n\n{page}" if part.code == 2 else page
        part.suites = [formats.suite_of(found)]
        part.command = f"plumbline compare {before} {after}"
        sides = f"{counted(len(found.after), 'session')} after against {len(found.before)} before"
        part.told = _joined(f"{MAINTENANCE[part.code]}: {sides}", _unread(history))
    return part


def screened(system: str, names: list[str]) -> Part:
    """Nodes, pairs and links that are slow now."""
    part = Part("slow nodes", command=f"plumbline screen {' '.join(names)}")
    with _contained(part), History() as history:
        found = screen.screen_history(history, Selection(system=system), names)
        part.code = 1 if found.named else 2 if history.faults or found.unsure else 0
        lines, cases = [], []
        for one in found.named:
            name = ":".join(one.name)
            told = f"{one.kind} {name}: slower by {one.size:.1%} since {one.since}"
            lines.append(f"- {escaped(told)}")
            failed = junitparser.Failure(printable(told), "slow")
            cases.append(suites.case(name, f"slow {one.kind}", failed))
        part.page, part.suites = "\n".join(lines), [suites.suite(part.title, cases)]
        more = len(found.told) - 1
        alone = "--no-screen skips this, as for one node, which has no peers"
        part.told = _joined(
            f"{len(found.named)} named",
            *found.told[:1],
            f"and {more} more such lines" if more > 0 else "",
            _unread(history),
            alone if part.code == 2 and found.few else "",
        )
    return part


def reported(folder: Path) -> Part:
    """The report, written anew."""
    part = Part("report")
    with _contained(part), History() as history:
        made = report.write(history, folder, Selection())
        part.told = _joined(str(made), _unread(history))
        part.code = 2 if history.faults else 0
    return part


def pruned(rules: retention.RetentionRules, say: Callable[[str], None]) -> Part:
    """What was removed or compressed as old."""
    part = Part("what is old")
    with _contained(part):
        done = retention.prune(paths.results(), rules, say)
        freed = f"{done.count} of them, {done.bytes / 1e6:.1f} MB freed"
        part.told = _joined(freed, *done.faults[:_SHOWN])
        part.code = 2 if done.faults else 0
    return part
