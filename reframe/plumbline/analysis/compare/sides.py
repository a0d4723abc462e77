"""The two sides of a comparison: which sessions are BEFORE and AFTER, and what they measured."""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

import numpy as np

from plumbline.core.errors import Fault
from plumbline.core.text import counted, near, some
from plumbline.history.history import MEASURED, CaseRow, History, SessionRow
from plumbline.history.series import Selection, Series, moment

#: Most sessions before BEFORE that are looked at for the noise.
PAST = 60


@dataclass(frozen=True)
class Unmeasured:
    """A test case that did not measure in some session after.

    :ivar results: result -> number of sessions after, with the words of the last reason.
    :ivar before: number of sessions before in which it did not measure either; ``after`` after.
    """

    case: str
    results: dict[str, int]
    reason: str
    before: int
    after: int


@dataclass
class Sides:
    """What both sides measured, and the past before them.

    :ivar sessions: of each side, oldest first.
    :ivar series: of each side, and of the past; first attempts only.
    :ivar retried: number of values of later attempts, which do not count.
    :ivar unended: sessions among the newest that ``last:N`` leaves out, since they have not ended.
    """

    sessions: dict[str, list[SessionRow]]
    series: dict[str, list[Series]]
    unmeasured: list[Unmeasured] = field(default_factory=list)
    retried: int = 0
    unended: list[str] = field(default_factory=list)


def sessions_of(
    text: str, known: list[SessionRow], side: str, unended: Container[str] = ()
) -> list[SessionRow]:
    """The sessions that a word of the command line means, oldest first.

    :arg text: ids or patterns of ids, comma separated; ``FROM..UNTIL``, either end open;
        ``last:N``; or ``KEY=VALUE`` of their extras, comma separated, all of which they must have.
    :arg side: what the word is called in a fault.
    :arg unended: sessions that ``last:N`` does not mean.
    :raises Fault: if it means none, or names one that is not there.
    """
    if last := re.fullmatch(r"last:(\d{1,6})", text):
        ended = [row for row in known if row.session not in unended]
        if not ended:
            raise Fault(
                f"{side}: {text}: no session has ended yet: {_listed(known)}",
                code="history.not-ended",
            )
        if not 1 <= int(last[1]) <= len(ended):
            there = f"{counted(len(ended), 'session')} ended"
            raise Fault(
                f"{side}: {text}: name 1 to {len(ended)}, as {there}: {_listed(ended)}",
                code="input.wrong-option",
            )
        return ended[-int(last[1]) :]
    if text.startswith("last:"):
        raise Fault(
            f"{side}: {text}: a number belongs behind it, as in last:5", code="input.wrong-option"
        )
    if ".." in text:
        first, _, end = text.partition("..")
        since = _moment(first, side, end=False) if first else None
        until = _moment(end, side, end=True) if end else None
        if since is not None and until is not None and until <= since:
            raise Fault(f"{side}: {text}: its end is before its start", code="input.wrong-option")
        found = [
            row
            for row in known
            if (since is None or row.start >= since) and (until is None or row.start < until)
        ]
    elif "=" in text:
        wanted = _extras(text, side)
        found = [
            row
            for row in known
            if all(
                k in row.extras and fnmatch.fnmatchcase(row.extras[k], value) for k, value in wanted
            )
        ]
    else:
        found = _named(text, known, side)
    if not found:
        raise Fault(
            f"{side}: {text!r} means no session; there are: {_listed(known)}",
            code="history.unknown-session",
        )
    return found


def _moment(text: str, side: str, end: bool) -> np.datetime64:
    try:
        found = moment(text, end)
    except Fault as err:
        raise Fault(f"{side}: {err}", code=err.code) from None
    return np.datetime64(found.astimezone(datetime.timezone.utc).replace(tzinfo=None), "s")


def _extras(text: str, side: str) -> list[tuple[str, str]]:
    found = []
    for pair in text.split(","):
        key, equals, wanted = pair.partition("=")
        if not key or not equals:
            raise Fault(f"{side}: {pair!r} is not KEY=VALUE", code="input.wrong-option")
        found.append((key, wanted))
    return found


def _named(text: str, known: list[SessionRow], side: str) -> list[SessionRow]:
    ids = [row.session for row in known]
    chosen = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        found = [known for known in ids if known == name] or fnmatch.filter(ids, name)
        if not found:
            raise Fault(
                f"{side}: no session {name!r}; {_meant(name, known)}",
                code="history.unknown-session",
            )
        chosen.update(found)
    return [row for row in known if row.session in chosen]


def _meant(name: str, known: list[SessionRow]) -> str:
    """What somebody may have meant by a name that no session has."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", name):
        return f"a day is {name}..{name}"
    word, colon, number = name.partition(":")
    if colon and difflib.get_close_matches(word, ["last"]):
        return f"near: last:{number}"
    return near(name, [row.session for row in known], _listed(known))


def _listed(known: list[SessionRow], most: int = 3) -> str:
    """Some of the sessions, with their extras, newest last."""
    told = []
    for row in known[-most:]:
        extras = ", ".join(f"{key}={value}" for key, value in row.extras.items())
        told.append(f"{row.session} ({extras})" if extras else row.session)
    more = f"{len(known) - most} more, " if len(known) > most else ""
    return f"{more}{', '.join(told)} (`plumbline history list`)"


def load(history: History, select: Selection, before: str, after: str, past: bool = True) -> Sides:
    """Both sides of a comparison, from the history.

    :arg past: whether earlier sessions may tell the noise.
    :raises Fault: if a side has no session, a session is on both, or nothing is selected.
    """
    known = history.sessions(select)
    unended = history.unended(known) if "last:" in before + after else set()
    first = sessions_of(before, known, "BEFORE", unended)
    second = sessions_of(after, known, "AFTER", unended)
    if both := {row.session for row in first} & {row.session for row in second}:
        raise Fault(_overlap(first, second, both, before), code="history.shared-sessions")
    earlier = []
    if past and second[0].start > first[-1].start:
        earlier = [row for row in known if row.start < first[0].start][-PAST:]
    sessions = {"before": first, "after": second, "past": earlier}
    every = tuple(row.session for rows in sessions.values() for row in rows)
    chosen = replace(select, sessions=every)
    cases = history.cases(chosen)
    retries = {_place(case) for case in cases if case.attempt}
    newest = max(row.start for row in second)
    passed = [row.session for row in known if row.session in unended and row.start > newest]
    sides = Sides(sessions, {name: [] for name in sessions}, unended=passed)
    for series in history.series(chosen):
        again = _again(series, retries)
        sides.retried += int(again.sum())
        for name, rows in sessions.items():
            there = np.isin(series.sessions.astype(str), [row.session for row in rows]) & ~again
            if there.any():
                sides.series[name].append(part(series, there))
    sides.unmeasured = _unmeasured(cases, first, second)
    return sides


def _overlap(first: list[SessionRow], second: list[SessionRow], both: set[str], before: str) -> str:
    """What is wrong with two sides that share sessions, and how to name them instead."""
    shared = counted(len(both), "session")
    told = f"{shared} on both sides, BEFORE and AFTER ({some(sorted(both))}): "
    told += "name sets that share none"
    since = second[0].start
    if any(row.start < since for row in first):
        told += f"; what {before} has from before AFTER began ends at ..{since}"
    return told


def _place(case: CaseRow) -> tuple:
    return (case.system, case.partition, case.environment, case.check, case.node, case.session,
            case.time)  # fmt: skip


def _again(series: Series, retries: set[tuple]) -> np.ndarray:
    """Which values are of a later attempt: the first verdict counts."""
    if not retries:
        return np.zeros(len(series.values), bool)
    key = series.key
    fixed = (key.system, key.partition, key.environment, key.check, key.node)
    pairs = zip(series.sessions, series.times, strict=True)
    return np.array([(*fixed, session, time) in retries for session, time in pairs])


def part(series: Series, there: np.ndarray) -> Series:
    """Some of a series' values.

    :arg there: true for each value that is wanted.
    """
    cut = {
        name: value[there] for name, value in vars(series).items() if isinstance(value, np.ndarray)
    }
    samples = [found for found, wanted in zip(series.samples, there, strict=True) if wanted]
    return replace(series, samples=samples, **cut)


def per_session(series: Series, single: bool = False) -> dict[str, np.ndarray]:
    """Session -> what it says of the figure: one value, the median of its cases', or, if
    ``single``, each of its samples."""
    found: dict[str, list[float]] = {}
    for session, value, samples in zip(series.sessions, series.values, series.samples, strict=True):
        found.setdefault(str(session), []).extend(samples if single else [value])
    pick: Callable = np.asarray if single else lambda values: np.array([np.median(values)])
    return {session: pick(values) for session, values in found.items()}


def _unmeasured(
    cases: list[CaseRow], first: list[SessionRow], second: list[SessionRow]
) -> list[Unmeasured]:
    """The cases of AFTER that did not measure somewhere, first attempts only."""
    sides = [{row.session for row in rows} for rows in (first, second)]
    failed: dict[str, list[CaseRow]] = {}
    for case in cases:
        if case.attempt == 0 and case.result not in MEASURED:
            node = f" on {case.node}" if case.node else ""
            name = f"{case.check} @{case.system}:{case.partition}+{case.environment}{node}"
            failed.setdefault(name, []).append(case)
    found = []
    for name, rows in sorted(failed.items()):
        before, after = ([row for row in rows if row.session in side] for side in sides)
        if after:
            counts = Counter(row.result for row in after)
            found.append(Unmeasured(name, dict(counts), after[-1].reason, len(before), len(after)))
    return found
