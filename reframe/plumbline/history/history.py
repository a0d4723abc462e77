"""The history: what all sessions measured, asked for by selection.

The lines of the sessions' records are the truth; :mod:`plumbline.history.index` keeps what is
asked for often. A CSV file that ``plumbline history export`` printed can take the place of both.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from plumbline.check import record
from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.text import near
from plumbline.history import index
from plumbline.history.series import ALL, Key, Selection, Series
from plumbline.reference import tables

#: Lines of one kind that are said.
_MOST_SAID = 5

#: Values that are read at once, where checks are read one after another.
_AT_ONCE = 50_000

#: Results of a case in which something was measured.
MEASURED = ("pass", "fail", "waived")

#: Where the names of a selection are found, in rows of single figures. A check is named with or
#: without its parameters, as in a waiver.
_COLUMNS = {
    "system": ["coalesce(system, session_system)"],
    "partition": ["partition"],
    "environment": ["environment"],
    "check": ["""split_part("check", ' ', 1)""", '"check"'],
    "benchmark": ["benchmark"],
    "node": ["node"],
    "metric": ["metric"],
    "placement": ["coalesce(placement, case_placement)"],
}

#: What tells one series from another, in the order of :class:`Key`.
_KEY = 'system, partition, environment, "check", metric, size, "at", placement, conditions, node'
#: Of sessions, and within each of its cases.
_ORDER = "start, session, line"

_KEYS = f"""
SELECT {_KEY}, count(*) AS number, count(DISTINCT unit) AS units,
    arg_max(struct_pack(benchmark, unit, better), (start, session, line)) AS newest
FROM flat WHERE result IN {MEASURED} AND metric IS NOT NULL AND WANTED
GROUP BY ALL ORDER BY {_KEY}
"""
#: How much there is of each check, for what is read check by check.
_MEASURED = f"""
SELECT system, "check", count(*), sum(number)::BIGINT, max(number) FROM (
    SELECT {_KEY}, count(*) AS number
    FROM flat WHERE result IN {MEASURED} AND metric IS NOT NULL AND WANTED GROUP BY ALL)
GROUP BY ALL ORDER BY ALL
"""
_OF_CHECKS = """
AND (system, "check") IN (SELECT unnest($of_systems), unnest($of_checks))
"""
_VALUES = f"""
SELECT session AS sessions, time AS times, value AS "values", coalesce(lower, 'nan') AS lower,
    coalesce(upper, 'nan') AS upper, coalesce(ceiling, 'nan') AS ceiling, verdict AS verdicts,
    reference AS "references", build AS builds, nodes, SAMPLES unit
FROM flat WHERE result IN {MEASURED} AND metric IS NOT NULL AND WANTED
ORDER BY {_KEY}, {_ORDER}
"""
#: Columns of it with few different texts.
_NAMES = ("sessions", "verdicts", "references", "builds", "nodes")
_CASES = f"""
SELECT session, time, system, partition, environment, "check", "case", attempt, benchmark,
    case_placement, result, reason, case_waiver,
    CASE WHEN nodes = '' THEN [] ELSE string_split(nodes, ',') END, node, build, output
FROM files JOIN cases USING (file) WHERE WANTED ORDER BY {_ORDER}
"""
_LINES = """
SELECT session, list(line) FROM files JOIN cases USING (file) WHERE WANTED
GROUP BY start, session ORDER BY start, session
"""
_SESSIONS = """
WITH chosen AS (SELECT * FROM files LEFT JOIN cases USING (file) WHERE WANTED),
judged AS (
    SELECT file, histogram(verdict) AS verdicts FROM chosen JOIN figures USING (file, line)
    GROUP BY file)
SELECT session, any_value(session_system), start, any_value(stop), any_value(extras),
    coalesce(any_value(planned), count(DISTINCT "case")), coalesce(histogram(result), MAP {}),
    coalesce(any_value(verdicts), MAP {}), count(DISTINCT "case"), sum(seconds)
FROM chosen LEFT JOIN judged USING (file) GROUP BY start, session ORDER BY start, session
"""
_FAULTS = """
SELECT session, place, why FROM faults JOIN files USING (file) WHERE WANTED
ORDER BY start, session, faults.rowid
"""
_NOTES = """
SELECT session, unnest(list_filter([
    CASE WHEN back
        THEN 'the clock jumped back while it ran: its cases stand in the order of their lines' END,
    CASE WHEN planned IS NULL THEN 'no plan.json: how many cases it had is not known' END,
    CASE WHEN missing > 0 THEN 'it has ended, and ' || missing || ' of ' || planned
        || ' planned cases have no record: if its output has lines `plumbline-record`, '
        || '`plumbline history recover` takes them' END], lambda note: note IS NOT NULL))
FROM files WHERE (back OR planned IS NULL OR missing > 0) AND WANTED ORDER BY start, session
"""
#: What the CSV has, lists, maps and what is true or not as JSON.
_FLAT = f"""
SELECT * EXCLUDE (file, state, missing)
    REPLACE (to_json(extras)::VARCHAR AS extras, to_json(samples)::VARCHAR AS samples,
        back::VARCHAR AS back, near::VARCHAR AS near)
FROM flat WHERE WANTED ORDER BY {_ORDER}, metric, size, "at"
"""


@dataclass
class SessionRow:
    """One session.

    :ivar start: the end of its first case, UTC; ``end``: of its last.
    :ivar planned: number of cases; of those that ended, where there is no plan.
    :ivar results: number of cases by result.
    :ivar verdicts: number of figures by verdict.
    :ivar ended: number of cases that a record tells of, each once however often it was tried.
    :ivar seconds: of all its cases, each from set-up to verdict, without waiting for a turn or in a
        queue; ``None`` where no record has it.
    """

    session: str
    system: str
    start: np.datetime64
    end: np.datetime64
    extras: dict[str, str]
    planned: int
    results: dict[str, int]
    verdicts: dict[str, int]
    ended: int
    seconds: float | None


@dataclass
class CaseRow:
    """One test case of one session, as its record has it.

    :ivar time: its end, UTC.
    :ivar check: name with parameters, without what ``--distribute`` adds.
    :ivar node: the one that ``--distribute`` pinned it to, or empty.
    :ivar build: short hash of the build's fields, equal for equal builds.
    """

    session: str
    time: np.datetime64
    system: str
    partition: str
    environment: str
    check: str
    case: str
    attempt: int
    benchmark: str
    placement: str
    result: str
    reason: str
    waiver: str
    nodes: list[str]
    node: str
    build: str
    output: str


@dataclass(frozen=True)
class Measured:
    """What was measured of one check of a system.

    :ivar series: how many there are.
    :ivar values: of all of them.
    :ivar most: values of the series that has most.
    """

    system: str
    check: str
    series: int
    values: int
    most: int


class History:
    """What all sessions measured, oldest first.

    A session counts as a whole to the time of its first case.

    :ivar faults: what was left out of the answers so far, ``FILE:LINE: why``.
    :ivar notes: what is not as it should be, although nothing was left out for it.
    """

    def __init__(self, source: Path | None = None, say: Callable[[str], None] | None = None):
        """
        :arg source: a results folder, by default that of ``PLUMBLINE_RESULTS``, or a CSV file.
        :arg say: is told what takes long, or is not as it should be.
        :raises Fault: if nothing is there, or no session.
        """
        self.source = Path(source or paths.results())
        self.faults: list[str] = []
        self.notes: list[str] = []
        self._say = say or (lambda line: None)
        self._csv = self.source.is_file()
        self._open()

    def _open(self, anew: bool = False) -> None:
        self._file = None
        if self._csv:
            self._db, faults = index.of_csv(self.source)
        else:
            self._db, self._file, faults = index.opened(self.source, self._say, anew)
        _add(self.faults, faults)

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def sessions(self, select: Selection = ALL) -> list[SessionRow]:
        """The sessions, each with its selected cases.

        :raises Fault: if none is selected.
        """
        return [
            SessionRow(session, system, _second(start), _second(stop), *more)
            for session, system, start, stop, *more in self._asked(_SESSIONS, select)
        ]

    def unended(self, rows: list[SessionRow]) -> set[str]:
        """The names of sessions that still run or were cut off: they wrote no end, and planned more
        cases than they have records of. A CSV file tells of no end: none of it is."""
        folder = self.source / "sessions"
        names = [row.session for row in rows if not (folder / row.session / "end.json").exists()]
        if not names or not folder.is_dir():
            return set()
        whole = self.sessions(Selection(sessions=tuple(names)))
        return {row.session for row in whole if row.ended < row.planned}

    def cases(self, select: Selection = ALL) -> list[CaseRow]:
        """The cases of all results, in the order of their sessions and lines.

        :raises Fault: if none is selected.
        """
        return [
            CaseRow(session, _second(time), *cells)
            for session, time, *cells in self._asked(_CASES, select)
        ]

    def series(self, select: Selection = ALL, samples: bool = True) -> list[Series]:
        """The series, sorted by key, of the values of cases in which something was measured.

        :arg samples: whether each value has its samples, which are most of the memory; else none.
        :raises Fault: if none is selected.
        """
        return self._all_series(select, samples, self._asked(_KEYS, select, flat=True))

    def measured(self, select: Selection = ALL) -> list[Measured]:
        """The checks of each system that something was measured of, sorted."""
        return [Measured(*row) for row in self._fetched(_MEASURED, select, flat=True)]

    def by_check(
        self, checks: Iterable[Measured], select: Selection = ALL
    ) -> Iterator[list[Series]]:
        """The series of each of these checks, sorted by key and without samples.

        As many checks are read at once as have few values together, so that memory does not grow
        with the history, and a thousand small checks are no thousand questions.
        """
        for batch in _batches(checks):
            of = {"of_systems": [one.system for one in batch],
                  "of_checks": [one.check for one in batch]}  # fmt: skip
            found: dict[tuple[str, str], list[Series]] = {}
            keys = self._fetched(_KEYS, select, flat=True, more=_OF_CHECKS, of=of)
            for one in self._all_series(select, False, keys, more=_OF_CHECKS, of=of):
                found.setdefault((one.key.system, one.key.check), []).append(one)
            for check in batch:
                yield found.pop((check.system, check.check), [])

    def _all_series(
        self, select: Selection, samples: bool, keys: list[tuple[Any, ...]], **more: Any
    ) -> list[Series]:
        found, end = [], 0
        values = _VALUES.replace("SAMPLES", "samples," if samples else "")
        columns = self._fetched(values, select, flat=True, how="fetchnumpy", **more)
        for name in _NAMES:
            # Each text once in memory, where DuckDB gives one for every row.
            columns[name] = np.array([*map(sys.intern, columns[name])], object)
        for *cells, number, units, newest in keys:
            start, end = end, end + number
            part = {name: column[start:end] for name, column in columns.items()}
            found.append(self._series(Key(*cells), part, units, **newest))
        return found

    def _series(
        self, key: Key, columns: dict[str, Any], units: int, benchmark: str, unit: str, better: str
    ) -> Series:
        if units > 1:
            # Values in another unit cannot stand beside these, whatever their name.
            same = columns["unit"] == unit
            told = f"{(~same).sum()} values are in another unit than the newest, {unit}"
            _add(self.faults, [f"{key.check} @{key.system} {key.metric}: {told}"])
            columns = {name: column[same] for name, column in columns.items()}
        del columns["unit"]
        if not better:
            better = tables.directions(paths.reference()).get((benchmark, key.metric), "neither")
        columns["samples"] = [samples.tolist() for samples in columns.get("samples", ())]
        return Series(key, benchmark, unit, better, **columns)

    def records(self, select: Selection = ALL) -> Iterator[record.Record]:
        """The whole records, read from the lines, as records of today's schema.

        :raises Fault: if none is selected, or the source is a CSV file.
        """
        if self._csv:
            raise Fault(
                f"{self.source}: whole records are in a results folder only",
                code="history.csv-only",
            )
        for session, lines in self._asked(_LINES, select):
            wanted = set(lines)
            path = self.source / "sessions" / session / "records.jsonl"
            try:
                with files.binary(path) as file:
                    for number, line in enumerate(file, 1):
                        if number in wanted:
                            yield record.parse(line)
            except (OSError, record.Damaged) as err:
                # It was there a moment ago.
                _add(self.faults, [f"{path}: it changed while it was read: {err}"])

    def rows(self, select: Selection = ALL) -> list[tuple[Any, ...]]:
        """The columns' names, and all there is of a row for each figure, each case without one, and
        each session without a case: as CSV, a source of the same history.

        :raises Fault: if nothing is selected.
        """
        return [tuple(index.columns(self._db)), *self._asked(_FLAT, select, flat=True)]

    # -- asking -----------------------------------------------------------------------------

    def _asked(self, question: str, select: Selection, flat: bool = False) -> list[tuple[Any, ...]]:
        """The rows of an answer, after what was left out of it is told."""
        rows: list[tuple[Any, ...]] = self._fetched(question, select, flat)
        spans = {name: getattr(select, name) for name in ("sessions", "since", "until", "extras")}
        of_sessions = Selection(**spans)
        for session, place, why in self._fetched(_FAULTS, of_sessions):
            _add(self.faults, [f"{self.source / 'sessions' / session / place}: {why}"])
        told = len(self.notes)
        _add(self.notes, [f"{name}: {note}" for name, note in self._fetched(_NOTES, of_sessions)])
        for note in self.notes[told : told + _MOST_SAID]:
            self._say(note)
        if len(self.notes) > told + _MOST_SAID:
            self._say(f"and {len(self.notes) - told - _MOST_SAID} more such sessions")
        if not rows:
            self._refuse(select)
        return rows

    def _refuse(self, select: Selection) -> None:
        """Says why nothing is selected."""
        known = {name for (name,) in self._fetched("SELECT session FROM files", ALL)}
        for name in select.sessions:
            if name not in known:
                meant = f"{near(name, sorted(known, reverse=True))} (`plumbline history list`)"
                raise Fault(
                    f"{self.source}: no session {name!r}; {meant}", code="history.unknown-session"
                )
        told = [f"left out: {fault}" for fault in self.faults[:_MOST_SAID]]
        why = "".join(f"; {line}" for line in self._unknown(select))
        told.append(f"{self.source}: nothing there is selected{_told(select)}{why}")
        raise Fault("\n".join(told), code="history.nothing-selected")

    def _unknown(self, select: Selection) -> Iterator[str]:
        """Which names of a selection nothing has, each with what is near or there."""
        for name, columns in _COLUMNS.items():
            pattern = getattr(select, name)
            one = Selection(**{name: pattern})
            if not pattern or self._fetched("SELECT 1 FROM flat WHERE WANTED LIMIT 1", one, True):
                continue
            column = columns[-1] if " " in pattern else columns[0]
            names = f"SELECT DISTINCT {column} AS name FROM flat WHERE name != '' ORDER BY name"
            known = [found for (found,) in self._fetched(names, ALL, True)]
            if known:
                yield f"{name} {pattern!r}: {near(pattern, known)}"

    def _fetched(
        self,
        question: str,
        select: Selection,
        flat: bool = False,
        how: str = "fetchall",
        more: str = "",
        of: dict[str, Any] | None = None,
    ) -> Any:
        """An answer as one of DuckDB's methods gives it; a damaged index is built anew, once.

        :arg more: a further condition, and ``of``, its values.
        """
        where, values = _wanted(select, flat)
        values |= of or {}
        statement = question.replace("WANTED", where + more)
        try:
            return getattr(self._db.execute(statement, values), how)()
        except duckdb.Error as err:
            if self._file is None:
                raise Fault(
                    f"{self.source}: {index.first_line(err)}", code="history.not-indexed"
                ) from None
            self._say(f"{self._file}: cannot be read ({index.first_line(err)}): built anew")
        self._db.close()
        self._open(anew=True)
        self._file = None
        return self._fetched(question, select, flat, how, more, of)


def _batches(checks: Iterable[Measured]) -> Iterator[list[Measured]]:
    """Checks that are read at once: one, or several that have few values together."""
    batch: list[Measured] = []
    size = 0
    for one in checks:
        if batch and size + one.values > _AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.values
    if batch:
        yield batch


def _add(told: list[str], lines: list[str]) -> None:
    told += [line for line in lines if line not in told]


def _second(time: datetime.datetime) -> np.datetime64:
    return np.datetime64(time, "s")


def _told(select: Selection) -> str:
    chosen = [f"{name}={value}" for name, value in vars(select).items() if value]
    return f" by {', '.join(chosen)}" if chosen else ""


def _wanted(select: Selection, flat: bool) -> tuple[str, dict[str, Any]]:
    """The condition of a selection, and its values.

    :arg flat: whether it is of single figures, and not of cases.
    """
    conditions, values = ["true"], {}

    def want(condition: str, **given: object) -> None:
        conditions.append(condition)
        values.update(given)

    for name in ("system", "partition", "environment", "check", "benchmark", "node"):
        if pattern := getattr(select, name):
            fits = [f"{column} GLOB ${name}" for column in _COLUMNS[name]]
            want(f"({' OR '.join(fits)})", **{name: _pattern(pattern)})
    metric, placement = _pattern(select.metric or "*"), _pattern(select.placement or "*")
    if flat and select.metric:
        want("metric GLOB $metric", metric=metric)
    if flat and select.placement:
        want("coalesce(placement, case_placement) GLOB $placement", placement=placement)
    if not flat and (select.metric or select.placement):
        having = "(file, line) IN (SELECT (file, line) FROM figures WHERE metric GLOB $metric"
        having += " AND placement GLOB $placement)"
        alone = " OR case_placement GLOB $placement" if not select.metric else ""
        want(f"({having}{alone})", metric=metric, placement=placement)
    if select.sessions:
        want("session IN (SELECT unnest($sessions))", sessions=list(select.sessions))
    if select.since:
        want("start >= $since", since=_utc(select.since))
    if select.until:
        want("start < $until", until=_utc(select.until))
    for number, (key, value) in enumerate(select.extras.items()):
        want(f"extras[$key{number}] = $extra{number}",
             **{f"key{number}": key, f"extra{number}": value})  # fmt: skip
    return " AND ".join(conditions), values


def _pattern(text: str) -> str:
    """A pattern of DuckDB's GLOB, in which only ``*`` and ``?`` stand for others."""
    return text.replace("[", "[[]")


def _utc(time: datetime.datetime) -> datetime.datetime:
    """As the index has it: UTC without saying so."""
    return time.astimezone(datetime.timezone.utc).replace(tzinfo=None) if time.tzinfo else time
