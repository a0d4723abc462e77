"""The history: queries about the measurements of all sessions.

The records of the sessions are the data; :mod:`plumbline.history.index` makes queries fast. A CSV
file of ``plumbline history export`` can replace both.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from plumbline.check import record, session_files
from plumbline.core import files, paths, units
from plumbline.core.errors import Fault
from plumbline.core.text import suggest
from plumbline.history import index, statements
from plumbline.history.rows import (
    AHEAD,
    CaseId,
    CaseRow,
    Measured,
    NodeRow,
    RanRow,
    SessionRow,
    TogetherRow,
)
from plumbline.history.series import ALL, Key, Selection, Series
from plumbline.reference import tables

#: At most so many messages of one kind are shown.
_MAX_MESSAGES = 5

#: How many values are read at once if checks are read one after another.
_AT_ONCE = 50_000


class _Lines(list[str]):
    """Messages in their order, each once."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[str] = set()

    def add(self, lines: Iterable[str]) -> None:
        """Append the lines that are new."""
        new = [line for line in dict.fromkeys(lines) if line not in self._known]
        self._known.update(new)
        self += new


class History:
    """The measurements of all sessions, oldest first.

    The time of a session is that of its first case.

    :ivar from_csv: whether the source is a CSV file, which has neither records nor warnings.
    :ivar faults: what was skipped in the queries so far, as ``FILE:LINE: reason``.
    :ivar notes: sessions that are incomplete, although nothing was skipped.
    """

    def __init__(self, source: Path | None = None, say: Callable[[str], None] | None = None):
        """
        :arg source: a results folder, by default that of ``PLUMBLINE_RESULTS``, or a CSV file.
        :arg say: receives messages about slow operations and incomplete sessions.
        :raises Fault: if there is no such folder or file, or no session in it.
        """
        self.source = paths.in_utf8(Path(source or paths.results()))
        self.faults = _Lines()
        self.notes = _Lines()
        self._reported: set[tuple[object, ...]] = set()
        self._say = say or (lambda line: None)
        # A report reads the next check while it writes the pages of one.
        self._lock = threading.RLock()
        self.from_csv = self.source.is_file()
        self._open()

    def _open(self, rebuild: bool = False) -> None:
        self._file = None
        if self.from_csv:
            self._db, faults = index.of_csv(self.source)
        else:
            self._db, self._file, faults = index.open_index(self.source, self._say, rebuild)
        self._reported.clear()
        self.faults.add(faults)

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        # If an error ends it, a thread may still read, whose next query must not rebuild the index.
        with self._lock:
            self._file = None
            self._db.close()

    def sessions(self, select: Selection = ALL) -> list[SessionRow]:
        """Return the sessions, each with its selected cases.

        :raises Fault: if none is selected.
        """
        return [SessionRow(*_in_utc(row)) for row in self._query(statements.SESSIONS, select)]

    def unended(self, rows: list[SessionRow]) -> set[str]:
        """Return the names of sessions that are running or were cut off: they have no end, and
        fewer records than planned cases. In a CSV file all sessions count as ended."""
        folder = self.source / "sessions"
        names = [row.session for row in rows if not (folder / row.session / "end.json").exists()]
        if not names or not folder.is_dir():
            return set()
        whole = self.sessions(Selection(sessions=tuple(names)))
        return {row.session for row in whole if row.ended < row.planned}

    def cases(self, select: Selection = ALL, only: Iterable[CaseId] | None = None) -> list[CaseRow]:
        """Return the cases, in the order of their sessions and lines.

        :arg only: of one system, those to return; one at least.
        :raises Fault: if none is selected.
        """
        of_cases: dict[str, Any] = {}
        if only is not None:
            _, *columns = map(list, zip(*only, strict=True))
            names = ("partitions", "environments", "checks", "nodes")
            of = dict(zip(names, columns, strict=True))
            of_cases = {"more": statements.OF_IDENTITIES, "of": of}
        return [CaseRow(*_in_utc(row)) for row in self._query(statements.CASES, select, **of_cases)]

    def ran(self, select: Selection = ALL) -> list[RanRow]:
        """Return the cases that ran, each with its last session, in the order of their first."""
        return [
            RanRow(CaseId(*identity), number, *_in_utc(last.values()))
            for *identity, number, last in self.fetch(statements.RAN, select)
        ]

    def missing(self, select: Selection = ALL) -> list[tuple[str, CaseId]]:
        """Return the planned cases without a record, each with its session; none of a CSV file.

        A plan has no benchmark, metric or placement: by these, what was ever recorded is selected.

        :raises Fault: if no session is selected.
        """
        planned = [
            (row.session, case, of["system"], of["partition"], of["environment"], of["check"])
            for row in ([] if self.from_csv else self.sessions(_of_sessions(select)))
            if row.ended < row.planned
            for case, of in self._planned(row.session).items()
        ]
        if not planned:
            return []
        columns = ("names", "cases", "systems", "partitions", "environments", "checks")
        plans = dict(zip(columns, map(list, zip(*planned, strict=True)), strict=True))
        of_plans = replace(select, benchmark="", metric="", placement="")
        found = [
            (name, CaseId(*identity))
            for name, *identity in self.fetch(statements.MISSING, of_plans, of=plans)
        ]
        if select == of_plans:
            return found
        always = replace(select, sessions=(), since=None, until=None, extras={})
        recorded = {row.identity for row in self.ran(always)}
        return [(name, case) for name, case in found if case in recorded]

    def _planned(self, session: str) -> dict[str, session_files.Planned]:
        folder = self.source / "sessions" / session
        try:
            return session_files.read_plan(folder)["cases"]
        except (OSError, record.Damaged) as err:
            self.faults.add([f"{folder / 'plan.json'}: changed while it was read: {err}"])
            return {}

    def nodes(self, select: Selection = ALL) -> list[NodeRow]:
        """Return the nodes that were measured by themselves, each with its last session."""
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        rows = self.fetch(statements.NODES, select, of={"ahead": now + AHEAD})
        self._report(select)
        return [NodeRow(*_in_utc(row)) for row in rows]

    def together(self, select: Selection = ALL) -> list[TogetherRow]:
        """Return the nodes that were measured with others, and the pairs of them, each with its
        last session."""
        rows = self.fetch(statements.TOGETHER, select)
        self._report(select)
        return [TogetherRow(*_in_utc(row)) for row in rows]

    def series(self, select: Selection = ALL, samples: bool = True) -> list[Series]:
        """Return the series of what first attempts measured, sorted by key.

        :arg samples: whether the single samples are read, which need most of the memory.
        :raises Fault: if none is selected.
        """
        return self._all_series(select, samples, self._query(statements.KEYS, select, flat=True))

    def measured(self, select: Selection = ALL) -> list[Measured]:
        """Return the checks of each system with measurements, sorted."""
        return [Measured(*row) for row in self.fetch(statements.CHECKS, select, flat=True)]

    def units(self, select: Selection = ALL) -> dict[str, list[int]]:
        """Return the sessions that measured single nodes, or pairs of nodes, in order, each with
        numbers of these nodes."""
        more = statements.OF_UNITS
        return dict(self.fetch(statements.UNITS, select, flat=True, more=more))

    def of_units(self, select: Selection = ALL) -> list[Series]:
        """Return the series of single nodes and of pairs of nodes, sorted by key and without
        samples: of those, screening can tell which is slow."""
        keys = self.fetch(statements.KEYS, select, flat=True, more=statements.OF_UNITS)
        found = self._all_series(select, False, keys, more=statements.OF_UNITS)
        # Screening, which follows, needs more memory than anything else. An index that is itself in
        # memory would be written to temporary files.
        with self._lock:
            if self._file:
                index.release(self._db)
        return found

    def by_check(
        self, checks: Iterable[Measured], select: Selection = ALL
    ) -> Iterator[list[Series]]:
        """Yield the series of each of these checks, sorted by key and without samples.

        Checks with few values are read together, to save queries, and others one by one, to save
        memory.
        """
        for batch in index.batches(checks, lambda check: check.values, _AT_ONCE):
            of = {"of_systems": [check.system for check in batch],
                  "of_checks": [check.check for check in batch]}  # fmt: skip
            found: dict[tuple[str, str], list[Series]] = {}
            keys = self.fetch(statements.KEYS, select, flat=True, more=statements.OF_CHECKS, of=of)
            for series in self._all_series(select, False, keys, more=statements.OF_CHECKS, of=of):
                found.setdefault((series.key.system, series.key.check), []).append(series)
            for check in batch:
                yield found.pop((check.system, check.check), [])

    def _all_series(
        self, select: Selection, samples: bool, keys: list[tuple[Any, ...]], **more: Any
    ) -> list[Series]:
        values = statements.VALUES.replace("SAMPLES", ", samples" if samples else "")
        columns = self.fetch(values, select, flat=True, how="fetchnumpy", **more)
        names = ("verdicts", "references", "builds", "nodes", "unit")
        texts = self.fetch(statements.TEXTS, select, flat=True, **more)
        columns |= _expanded(names, [(n, (*cells.values(),)) for n, cells in texts],
                             columns.pop("texts"))  # fmt: skip
        sessions = self.fetch("SELECT file, row(session) FROM files ORDER BY file", ALL)
        columns |= _expanded(("sessions",), sessions, columns.pop("file"))
        found, begin, end = [], {}, 0
        for _, series, number, *_ in sorted(keys, key=lambda row: row[1]):
            begin[series], end = end, end + number
        for key, series, number, mixed, newest in keys:
            mine = slice(begin[series], begin[series] + number)
            part = {name: column[mine] for name, column in columns.items()}
            found.append(self._series(Key(**key), part, mixed, **newest))
        return found

    def _series(
        self, key: Key, columns: dict[str, Any], mixed: bool, benchmark: str, unit: str, better: str
    ) -> Series:
        if mixed:
            columns = self._in_unit(key, columns, unit)
        del columns["unit"]
        if not better:
            better = tables.directions(paths.reference()).get((benchmark, key.metric), "neither")
        columns["samples"] = [samples.tolist() for samples in columns.get("samples", ())]
        return Series(key, benchmark, unit, better, **columns)

    def _in_unit(self, key: Key, columns: dict[str, Any], unit: str) -> dict[str, Any]:
        """Return the values of a series in one unit, and report those that cannot be converted."""
        factors = {}
        for other in {*columns["unit"]}:
            with contextlib.suppress(units.UnitError):
                factors[other] = units.conversion(other, unit)
        known = np.array([other in factors for other in columns["unit"]])
        if not known.all():
            reason = f"{(~known).sum()} values cannot be converted to the newest unit, {unit}"
            self.faults.add([f"{key.check} @{key.system} {key.metric}: {reason}"])
        found = {name: column[known] for name, column in columns.items()}
        factor = np.array([factors[other] for other in found["unit"]])
        numbers = {"values", "lower", "upper", "ceiling", "samples"} & found.keys()
        return found | {name: found[name] * factor for name in numbers}

    def records(
        self, select: Selection = ALL, cases: Iterable[tuple[str, int]] | None = None
    ) -> Iterator[record.Record]:
        """Yield the complete records, in the current schema.

        :arg cases: only of these, each with its attempt.
        :raises Fault: if none is selected, or the source is a CSV file.
        """
        if self.from_csv:
            raise Fault(
                f"{self.source}: a CSV file has no complete records: use a results folder",
                code="history.csv-only",
            )
        of_cases: dict[str, Any] = {}
        if cases is not None:
            names, attempts = map(list, zip(*cases, strict=True))
            of_cases = {"more": statements.OF_CASES, "of": {"names": names, "attempts": attempts}}
        for session, lines in self._query(statements.LINES, select, **of_cases):
            wanted = set(lines)
            path = self.source / "sessions" / session / "records.jsonl"
            try:
                with files.open_binary(path) as file:
                    for number, line in enumerate(file, 1):
                        if number in wanted:
                            yield record.parse(line)
            except (OSError, record.Damaged) as err:
                self.faults.add([f"{path}: changed while it was read: {err}"])

    def rows(self, select: Selection = ALL) -> list[tuple[Any, ...]]:
        """Return the names of the columns, and a row for each figure, each case without one, and
        each session without a case. As CSV, they are a source of the same history.

        :raises Fault: if nothing is selected.
        """
        rows = self._query(statements.FLAT, select, flat=True)
        return [tuple(index.columns(self._db)), *rows]

    # -- queries ----------------------------------------------------------------------------

    def _query(
        self, question: str, select: Selection, flat: bool = False, **more: Any
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query, and report what it skips."""
        rows: list[tuple[Any, ...]] = self.fetch(question, select, flat, **more)
        self._report(select)
        if not rows:
            self._refuse(select)
        return rows

    def _report(self, select: Selection) -> None:
        """Report what a query skips of these sessions, once."""
        of_sessions = _of_sessions(select)
        spans = [
            (one.sessions, one.since, one.until, *sorted(one.extras.items()))
            for one in (of_sessions, ALL)
        ]
        if not self._reported.isdisjoint(spans):
            return
        skipped = self.fetch(statements.FAULTS, of_sessions)
        shown = len(self.notes)
        self.notes.add(
            f"{name}: {note}" for name, note in self.fetch(statements.NOTES, of_sessions)
        )
        self.faults.add(
            f"{self.source / 'sessions' / session / place}: {why}"
            for session, place, why in skipped
        )
        self._reported.add(spans[0])
        for note in self.notes[shown : shown + _MAX_MESSAGES]:
            self._say(note)
        if len(self.notes) > shown + _MAX_MESSAGES:
            self._say(f"and {len(self.notes) - shown - _MAX_MESSAGES} more such sessions")

    def _refuse(self, select: Selection) -> None:
        """Raise a fault that explains why nothing is selected."""
        known = {name for (name,) in self.fetch("SELECT session FROM files", ALL)}
        for name in select.sessions:
            if name not in known:
                hint = f"{suggest(name, sorted(known, reverse=True))} (`plumbline history list`)"
                raise Fault(
                    f"{self.source}: there is no session {name!r}; {hint}",
                    code="history.unknown-session",
                )
        lines = [f"skipped: {fault}" for fault in self.faults[:_MAX_MESSAGES]]
        chosen = ", ".join(f"{name}={value}" for name, value in vars(select).items() if value)
        selection = f" by {chosen}" if chosen else ""
        hints = "".join(f"; {hint}" for hint in self._unknown(select))
        lines.append(f"{self.source}: nothing is selected{selection}{hints}")
        raise Fault("\n".join(lines), code="history.nothing-selected")

    def _unknown(self, select: Selection) -> Iterator[str]:
        """Yield the names of a selection that nothing has, each with suggestions."""
        for name, columns in statements.COLUMNS.items():
            pattern = getattr(select, name)
            selection = Selection(**{name: pattern})
            if not pattern or self.fetch(
                "SELECT 1 FROM flat WHERE WANTED LIMIT 1", selection, True
            ):
                continue
            column = columns[-1] if " " in pattern else columns[0]
            names = f"SELECT DISTINCT {column} AS name FROM flat WHERE name != '' ORDER BY name"
            known = [found for (found,) in self.fetch(names, ALL, True)]
            if known:
                yield f"{name} {pattern!r}: {suggest(pattern, known)}"

    def fetch(
        self,
        question: str,
        select: Selection,
        flat: bool = False,
        how: str = "fetchall",
        more: str = "",
        of: dict[str, Any] | None = None,
    ) -> Any:
        """Return the result of a query of the index; a damaged index is rebuilt once.

        :arg question: in it, ``WANTED`` is the condition of the selection.
        :arg how: DuckDB's method for the result.
        :arg more: a further condition.
        :arg of: values of that condition.
        """
        where, values = statements.condition(select, flat)
        values |= of or {}
        statement = question.replace("WANTED", where + more)
        with self._lock:
            try:
                return getattr(self._db.execute(statement, values), how)()
            except duckdb.Error as err:
                if self._file is None:
                    raise Fault(
                        f"{self.source}: {index.first_line(err)}", code="history.not-indexed"
                    ) from None
                self._say(f"{self._file}: cannot be read ({index.first_line(err)}): rebuilding it")
            self._db.close()
            self._open(rebuild=True)
            self._file = None
            return self.fetch(question, select, flat, how, more, of)


def _of_sessions(select: Selection) -> Selection:
    """Return a selection of the same sessions, with all their cases."""
    spans = {name: getattr(select, name) for name in ("sessions", "since", "until", "extras")}
    return Selection(**spans)


def _expanded(
    names: Sequence[str], table: Iterable[tuple[int, tuple[str, ...]]], numbers: np.ndarray
) -> dict[str, np.ndarray]:
    """Return columns of texts.

    :arg table: each number, in order, with its texts.
    :arg numbers: of each row.
    """
    known, texts = zip(*table, strict=True) if table else ((), ())
    at = np.searchsorted(np.array(known, numbers.dtype), numbers)
    columns = zip(*texts, strict=True) if texts else [()] * len(names)
    return {name: np.array(column, object)[at] for name, column in zip(names, columns, strict=True)}


def _in_utc(row: Iterable[Any]) -> Iterator[Any]:
    """Yield the cells of a row, with its times, which are in UTC, as numpy's."""
    for cell in row:
        yield np.datetime64(cell, "s") if isinstance(cell, datetime.datetime) else cell
