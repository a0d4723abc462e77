"""The parts of a night: other commands of Plumbline, and what each of them said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import junitparser

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import counted, escaped, printable
from plumbline.history import retention
from plumbline.history.history import History, SessionRow
from plumbline.history.series import Selection
from plumbline.output.export import UNASSERTED
from plumbline.site import configuration

if TYPE_CHECKING:
    from plumbline.operate.nightly import Wanted

#: What is said of an exit code: of a night, and after a maintenance.
NIGHT = {0: "as it should be", 1: "faults found", 2: "could not tell"}
MAINTENANCE = {0: "go", 1: "no-go", 2: "not enough data"}
#: Lines of a command's errors that are shown.
_SHOWN = 5


@dataclass
class Part:
    """What one of the commands said.

    :ivar told: in a line.
    :ivar page: in Markdown.
    :ivar suites: as JUnit XML has it, where there is more than this line.
    :ivar command: that says all of it.
    :ivar skipped: whether there was nothing to judge, so that it did not pass either.
    :ivar unasserted: whether it is a session that passed, and was held against nothing.
    """

    title: str
    code: int
    told: str
    page: str = ""
    suites: list[junitparser.TestSuite] = field(default_factory=list)
    command: str = ""
    skipped: bool = False
    unasserted: bool = False


def worst(codes: list[int]) -> int:
    """The exit code of a whole: what was found counts more than what could not be told."""
    return 1 if 1 in codes else 2 if any(codes) else 0


def exported(title: str, name: str, code: int, errors: list[str]) -> Part:
    """What a session said, from its records."""
    last = "; ".join(line.removeprefix("plumbline: ") for line in errors[-_SHOWN:])
    folder = paths.results() / "sessions" / name
    if not (folder / "plan.json").exists():
        return Part(title, 2, f"no test case was run: {last or 'the log says why'}")
    found, page, said = _asked("export", name, "--format=markdown")
    _, xml, _ = _asked("export", name, "--format=junit")
    code = code if code in (0, 1, 2) else 2
    told = f"{name}: {NIGHT[code]}"
    if errors and code:
        told += f": {last}"
    if not (folder / "end.json").exists():
        told += (
            "; its end is not in its folder: look for lines `plumbline-record` in the log, and "
            "`plumbline history recover` them"
        )
        code = code or 2
    if found:
        return Part(title, worst([code, 2]), f"{told}; {' '.join(said)}")
    suites = list(junitparser.JUnitXml.fromstring(xml))
    part = Part(title, code, told, page, suites, f"plumbline export {name} --format=markdown")
    part.unasserted = page.splitlines()[0].endswith(UNASSERTED)
    return part


def plumbline() -> str:
    """The path of Plumbline's command."""
    return str(Path(sys.executable).with_name("plumbline"))


def _asked(*arguments: str) -> tuple[int, str, list[str]]:
    """Another command's exit code, output, and lines of errors."""
    done = subprocess.run([plumbline(), *arguments], capture_output=True, text=True, check=False)
    errors = [line.removeprefix("plumbline: ") for line in done.stderr.splitlines()]
    if "Traceback (most recent call last):" in errors:
        errors = [f"plumbline {arguments[0]} broke: {errors[-1]}"]
    return (done.returncode if done.returncode in (0, 1, 2) else 2), done.stdout, errors


def _left_out(said: list[str]) -> str:
    """What of the history a command could not read: how many places, and the first of them."""
    found = [line for line in said if line.startswith("left out:")]
    more = f" (and {counted(len(found) - _SHOWN, 'more place')})" if found[_SHOWN:] else ""
    return "; ".join(found[:_SHOWN]) + more


def _json(text: str) -> list[dict] | None:
    try:
        return json.loads(text)
    except ValueError:
        return None


def trend(system: str, name: str) -> Part:
    """What the night changed: what was told first tonight is a fault, what is still on is told."""
    code, out, said = _asked("trend", f"--system={system}", "--format=json")
    rows = _json(out)
    if rows is None:
        return Part("trend", 2, "; ".join(said[-_SHOWN:]) or "it gave no answer")
    bad = _bad(rows)
    fresh = _fresh(bad, system, name) if bad else []
    left_out = _left_out(said)
    suite = junitparser.TestSuite("trend")
    lines, cases = [], []
    for row in sorted(bad, key=lambda row: row not in fresh):
        told = f"{row['kind']} of {row['size']:+.1%} since {row['start']}, found {row['night']}"
        lines.append(f"- {'**new** ' if row in fresh else ''}{escaped(row['series'])}: {told}")
        case = junitparser.TestCase(printable(row["series"]), "trend")
        new = junitparser.Failure(told, row["kind"])
        case.result = [new if row in fresh else junitparser.Skipped(f"known: {told}", "known")]
        cases.append(case)
    suite.add_testcases(cases)
    short = "; ".join(line for line in said if line.startswith("not judged:"))
    told = f"{len(fresh)} new, {len(bad) - len(fresh)} known and still on"
    told = "; ".join(filter(None, [told, short, left_out]))
    # Too few nights are no fault of this one.
    unread = 2 if left_out or (code == 2 and not short) else 0
    nothing = code == 2 and not rows and not unread
    return Part(
        "trend",
        1 if fresh else unread,
        told,
        "\n".join(lines),
        [suite],
        f"plumbline trend --system={system}",
        nothing,
    )


def _bad(rows: list[dict]) -> list[dict]:
    """What makes the exit code of `plumbline trend` 1."""
    kinds = ("regression", "drift")
    return [r for r in rows if r["kind"] in kinds and r["worse"] and r["on"] and r["confirmed"]]


def _fresh(bad: list[dict], system: str, name: str) -> list[dict]:
    """Those of which nothing was said the night before: the newest of each series that has more."""
    tonight = configuration.began(paths.results() / "sessions" / name)
    _, out, _ = _asked("trend", f"--system={system}", f"--until={tonight:%Y-%m-%dT00:00}",
                       "--format=json")  # fmt: skip
    known = Counter(row["series"] for row in _bad(_json(out) or []))
    found = []
    for row in sorted(bad, key=lambda row: row["start"]):
        known[row["series"]] -= 1
        if known[row["series"]] < 0:
            found.append(row)
    return found


def _sides(wanted: Wanted, rows: list[SessionRow]) -> tuple[list[str], list[str]]:
    """The sessions before a maintenance and after: the newest nights, or what there is."""
    after = [row for row in rows if row.extras.get("maintenance") == wanted.maintenance]
    earlier = [row for row in rows if row not in after and row.start < after[0].start]
    nights = [row for row in earlier if row.extras.get("run") == "nightly"] or earlier
    return [row.session for row in nights[-wanted.nights :]], [row.session for row in after]


def compared(wanted: Wanted, system: str) -> Part:
    """Before and after the maintenance."""
    title = "before and after"
    try:
        with History() as history:
            before, after = _sides(wanted, history.sessions(Selection(system=system)))
    except Fault as err:
        return Part(title, 2, str(err))
    enough = (
        f"Three sessions before and three after are the least, five of each are better; each "
        f"counts once. Before count those of `plumbline nightly` (all others of the system where "
        f"there is none), after those with `--maintenance={wanted.maintenance}`; and of both only "
        f"the test cases that both measured: `--mode={wanted.mode}` after, so with its tags before "
        f"too."
    )
    if not before:
        told = "there is no session before the maintenance to hold it against"
        return Part(title, 2, told, enough)
    words = [",".join(before), ",".join(after), f"--system={system}", f"--untold={wanted.untold}"]
    code, page, said = _asked("compare", *words, "--format=markdown")
    _, xml, _ = _asked("compare", *words, "--format=junit")
    if not page:
        return Part(title, 2, "; ".join(said[-_SHOWN:]))
    told = (
        f"{MAINTENANCE[code]}: {counted(len(after), 'session')} after against {len(before)} before"
    )
    told = "; ".join(filter(None, [told, _left_out(said)]))
    page = f"{enough}\n\n{page}" if code == 2 else page
    suites = list(junitparser.JUnitXml.fromstring(xml))
    command = f"plumbline compare {words[0]} {words[1]}"
    return Part(title, code, told, page, suites, command)


def screened(system: str, names: list[str]) -> Part:
    """Nodes, pairs and links that are slow now."""
    code, out, said = _asked("screen", *names, f"--system={system}", "--format=json")
    rows = _json(out)
    if rows is None:
        return Part("slow nodes", 2, "; ".join(said[-_SHOWN:]))
    suite = junitparser.TestSuite("slow nodes")
    lines, cases = [], []
    for row in rows:
        name = row["name"] if isinstance(row["name"], str) else ":".join(row["name"])
        told = f"{row['kind']} {name}: slower by {row['size']:.1%} since {row['since']}"
        lines.append(f"- {escaped(told)}")
        case = junitparser.TestCase(printable(name), f"slow {row['kind']}")
        case.result = [junitparser.Failure(printable(told), "slow")]
        cases.append(case)
    suite.add_testcases(cases)
    left_out = _left_out(said)
    said = [line for line in said if not line.startswith("left out:")]
    more = [f"and {len(said) - 1} more such lines"] if said[1:] else []
    more += [left_out] if left_out else []
    alone = code == 2 and any("too few peers" in line for line in said)
    more += ["--no-screen leaves this out, as for one node, which has no peers"] if alone else []
    told = "; ".join([f"{len(rows)} named", *said[:1], *more])
    command = f"plumbline screen {' '.join(names)}"
    return Part("slow nodes", code, told, "\n".join(lines), [suite], command)


def reported(folder: Path) -> Part:
    """The report, written anew."""
    code, out, said = _asked("report", f"--out={folder}")
    last = [line.removeprefix("plumbline: ") for line in out.splitlines()[-1:]] or said[-1:]
    return Part("report", 2 if code else 0, "; ".join([*last, *said[:_SHOWN]] if code else last))


def pruned(rules: retention.RetentionRules, say: Callable[[str], None]) -> Part:
    """What was removed or compressed as old."""
    done = retention.prune(paths.results(), rules, say)
    told = f"{done.count} of them, {done.bytes / 1e6:.1f} MB freed"
    return Part("what is old", 2 if done.faults else 0, "; ".join([told, *done.faults[:_SHOWN]]))
