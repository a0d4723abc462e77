"""The two sides of a comparison: which sessions are BEFORE and AFTER, and what they measured."""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from plumbline.check.record import MEASURED
from plumbline.core.errors import Fault, WrongOption
from plumbline.core.text import pluralize, shorten, suggest
from plumbline.history.history import History
from plumbline.history.rows import CaseId, SessionRow
from plumbline.history.series import Selection, Series, moment

#: Most sessions before BEFORE that are used for the noise.
PAST = 60
#: Why a planned case has no record, and what to do.
NOT_ENDED = (
    "planned, and its session has not ended: compare again when it has, or without that session if "
    "it was killed"
)
NOT_STORED = (
    "planned, and not recorded: if the output of its session has lines with `plumbline-record`, "
    "store them with `plumbline history recover`"
)


@dataclass(frozen=True)
class Unmeasured:
    """A test case that did not measure in some session after.

    :ivar results: result, or ``no record`` -> number of sessions after. :ivar reason: the last one.
    :ivar before: number of sessions before in which it did not measure either; ``after`` after.
    :ivar more_often: whether it measured in some session before, and was lost in a larger share of
        its sessions after.
    """

    case: str
    results: dict[str, int]
    reason: str
    before: int
    after: int
    more_often: bool


@dataclass
class Sides:
    """What both sides measured, and the past before them.

    :ivar sessions: of each side, oldest first.
    :ivar series: of each side, and of the past.
    :ivar retried: number of later attempts that measured, which are skipped.
    :ivar unended: newer sessions that ``last:N`` skips, since they have no end.
    """

    sessions: dict[str, list[SessionRow]]
    series: dict[str, list[Series]]
    unmeasured: list[Unmeasured] = field(default_factory=list)
    retried: int = 0
    unended: list[str] = field(default_factory=list)


def sessions_of(
    text: str, known: list[SessionRow], side: str, unended: Container[str] = ()
) -> list[SessionRow]:
    """Return the sessions that an argument of the command line selects, oldest first.

    :arg text: ids or patterns of ids, comma separated; ``FROM..UNTIL``, either end open;
        ``last:N``; or ``KEY=VALUE`` of their extras, comma separated, all of which they must have.
    :arg side: name of the argument, for messages.
    :arg unended: sessions that ``last:N`` skips.
    :raises Fault: if there is none, or an id is unknown.
    """
    if text.startswith("last:"):
        return _last(text, known, side, unended)
    if ".." in text:
        first, _, end = text.partition("..")
        since = _moment(first, side, end=False) if first else None
        until = _moment(end, side, end=True) if end else None
        if since is not None and until is not None and until <= since:
            raise WrongOption(f"{side}: {text}: the end is before the start")
        found = [
            row
            for row in known
            if (since is None or row.start >= since) and (until is None or row.start < until)
        ]
    elif "=" in text:
        patterns = _extras(text, side)
        found = [
            row
            for row in known
            if all(
                key in row.extras and fnmatch.fnmatchcase(row.extras[key], pattern)
                for key, pattern in patterns
            )
        ]
    else:
        found = _by_id(text, known, side)
    if not found:
        raise Fault(
            f"{side}: {text!r} selects no session; available: {_listed(known)}",
            code="history.unknown-session",
        )
    return found


def _last(
    text: str, known: list[SessionRow], side: str, unended: Container[str]
) -> list[SessionRow]:
    number = re.fullmatch(r"last:(\d{1,6})", text)
    if not number:
        raise WrongOption(f"{side}: {text}: write a number after the colon: last:5")
    ended = [row for row in known if row.session not in unended]
    if not ended:
        raise Fault(
            f"{side}: {text}: no session has ended yet: {_listed(known)}", code="history.not-ended"
        )
    if not 1 <= int(number[1]) <= len(ended):
        raise WrongOption(
            f"{side}: {text}: write a number from 1 to {len(ended)}: "
            f"{pluralize(len(ended), 'session')} ended: {_listed(ended)}"
        )
    return ended[-int(number[1]) :]


def _moment(text: str, side: str, end: bool) -> np.datetime64:
    try:
        found = moment(text, end)
    except Fault as err:
        raise Fault(f"{side}: {err}", code=err.code) from None
    return np.datetime64(found.astimezone(datetime.timezone.utc).replace(tzinfo=None), "s")


def _extras(text: str, side: str) -> list[tuple[str, str]]:
    found = []
    for pair in text.split(","):
        key, equals, pattern = pair.partition("=")
        if not key or not equals:
            raise WrongOption(f"{side}: {pair!r} is not KEY=VALUE")
        found.append((key, pattern))
    return found


def _by_id(text: str, known: list[SessionRow], side: str) -> list[SessionRow]:
    ids = [row.session for row in known]
    chosen = set()
    for name in filter(None, map(str.strip, text.split(","))):
        matching = [name] if name in ids else fnmatch.filter(ids, name)
        if not matching:
            raise Fault(
                f"{side}: no session {name!r}; {_suggestion(name, known)}",
                code="history.unknown-session",
            )
        chosen.update(matching)
    return [row for row in known if row.session in chosen]


def _suggestion(name: str, known: list[SessionRow]) -> str:
    """Return a suggestion for an unknown id."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", name):
        return f"write one day as {name}..{name}"
    word, colon, number = name.partition(":")
    if colon and difflib.get_close_matches(word, ["last"]):
        return f"did you mean last:{number}?"
    return suggest(name, [row.session for row in known], _listed(known))


def _listed(known: list[SessionRow], most: int = 3) -> str:
    """Return lines with the newest sessions and their extras, newest last."""
    names = []
    for row in known[-most:]:
        extras = ", ".join(f"{key}={value}" for key, value in row.extras.items())
        names.append(f"{row.session} ({extras})" if extras else row.session)
    older = f"{len(known) - most} older, " if len(known) > most else ""
    return f"{older}{', '.join(names)} (`plumbline history list`)"


def load(history: History, select: Selection, before: str, after: str, past: bool = True) -> Sides:
    """Load both sides of a comparison from the history.

    :arg past: use earlier sessions for the noise.
    :raises Fault: if a side has no session, a session is on both, or nothing is selected.
    """
    rows = history.sessions(select)
    lost = history.missing(select)
    # A session that planned a selected case is one of its side, also if it recorded none.
    if more := {name for name, _ in lost} - {row.session for row in rows}:
        rows += history.sessions(Selection(sessions=tuple(more)))
        rows.sort(key=lambda row: (row.start, row.session))
    known = [row for row in rows if not row.is_duet]
    unended = history.unended(known) if "last:" in before + after else set()
    first = sessions_of(before, known, "BEFORE", unended)
    second = sessions_of(after, known, "AFTER", unended)
    if both := {row.session for row in first} & {row.session for row in second}:
        raise Fault(_overlap(first, second, both, before), code="history.shared-sessions")
    earlier = []
    if past and second[0].start > first[-1].start:
        earlier = [row for row in known if row.start < first[0].start][-PAST:]
    sessions = {"before": first, "after": second, "past": earlier}
    names = {side: [row.session for row in rows] for side, rows in sessions.items()}
    chosen = replace(select, sessions=tuple(name for side in names.values() for name in side))
    cases = history.cases(chosen)
    newest = max(row.start for row in second)
    skipped = [row.session for row in known if row.session in unended and row.start > newest]
    retried = sum(case.attempt > 0 and case.result in MEASURED for case in cases)
    found = Sides(sessions, {side: [] for side in sessions}, retried=retried, unended=skipped)
    for series in history.series(chosen):
        for side, of_side in names.items():
            of_it = np.flatnonzero(np.isin(series.sessions.astype(str), of_side))
            if len(of_it):
                found.series[side].append(series.at(of_it))
    side_of = {name: side for side, of_side in names.items() for name in of_side}
    recorded = [
        (_name(case.identity), side_of[case.session], case.session, case.result, case.reason)
        for case in cases
        if case.attempt == 0
    ]
    not_ended = history.unended([*first, *second]) if lost else set()
    found.unmeasured = unmeasured([*recorded, *_without_record(lost, side_of, not_ended)])
    return found


def _without_record(
    lost: list[tuple[str, CaseId]], side_of: dict[str, str], not_ended: set[str]
) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield planned cases as cases that did not measure, for :func:`unmeasured`."""
    for session, case in lost:
        side = side_of.get(session)
        # Before, they may still measure, and as lost ones would excuse those lost after.
        if side and not (side == "before" and session in not_ended):
            reason = NOT_ENDED if session in not_ended else NOT_STORED
            yield _name(case), side, session, "no record", reason


def _name(case: CaseId) -> str:
    node = f" on {case.node}" if case.node else ""
    return f"{case.check} @{case.system}:{case.partition}+{case.environment}{node}"


def _overlap(first: list[SessionRow], second: list[SessionRow], both: set[str], before: str) -> str:
    """Return the message for two sides that share sessions."""
    message = (
        f"{pluralize(len(both), 'session')} on both sides, "
        f"BEFORE and AFTER ({shorten(sorted(both))}): "
        f"choose two sides without common sessions"
    )
    start = second[0].start
    if any(row.start < start for row in first):
        message += f"; the part of {before} before AFTER ends at ..{start}"
    return message


def per_session(series: Series, each_sample: bool = False) -> dict[str, np.ndarray]:
    """Return the value of each session, the median of its cases, or each of its samples."""
    found: dict[str, list[float]] = defaultdict(list)
    for session, value, samples in zip(series.sessions, series.values, series.samples, strict=True):
        found[str(session)] += samples if each_sample else [value]
    return {
        session: np.asarray(values) if each_sample else np.array([np.median(values)])
        for session, values in found.items()
    }


def unmeasured(cases: Iterable[tuple[str, str, str, str, str | None]]) -> list[Unmeasured]:
    """Return the cases that did not measure in some session after.

    :arg cases: name, side, session, result and reason of each. One that is repeated in a session
        counts once, and is lost if any of its runs did not measure.
    """
    ran: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    lost: dict[str, dict[str, dict[str, tuple[str, str]]]] = defaultdict(lambda: defaultdict(dict))
    for name, side, session, result, reason in cases:
        ran[name][side].add(session)
        if result not in MEASURED:
            lost[name][side][session] = result, reason or ""
    found = []
    for name, of in sorted(lost.items()):
        if not (late := [of["after"][session] for session in sorted(of["after"])]):
            continue
        before, after = (len(ran[name][side]) for side in ("before", "after"))
        early = len(of["before"])
        more_often = early < before and len(late) * before > early * after
        results = dict(Counter(result for result, _ in late))
        found.append(Unmeasured(name, results, late[-1][1], early, len(late), more_often))
    return found
