"""Reads plans and records of sessions into the tables of the history's index.

Each line is validated, and DuckDB gets the validated record, not the line: DuckDB would read a line
with a duplicate key in another way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb

from plumbline.check import record, session_files
from plumbline.core import files
from plumbline.core.text import ADDED
from plumbline.history import running

#: At most so many faulty lines of a file are listed.
_MAX_LISTED = 20
#: Bytes of records that are inserted at once.
_AT_ONCE = 16 << 20

#: ``start`` and ``stop`` are the times of a session's first and last line. ``back`` is true if the
#: time of a line is before that of the line above. ``planned`` is NULL without a plan. ``missing``
#: is the number of planned cases without a record, for a session that has ended. Lines count from
#: 1. ``aside`` has the sessions that are skipped, and why. ``flat`` has a row for each figure, each
#: case without one, and each session without a case.
TABLES = rf"""
CREATE TABLE about (version VARCHAR);
CREATE TABLE files (
    file INTEGER, session VARCHAR, state VARCHAR, session_system VARCHAR, start TIMESTAMP_S,
    stop TIMESTAMP_S, back BOOLEAN, extras MAP(VARCHAR, VARCHAR), planned INTEGER,
    missing INTEGER);
CREATE TABLE cases (
    file INTEGER, line INTEGER, time TIMESTAMP_S, system VARCHAR, partition VARCHAR,
    environment VARCHAR, "check" VARCHAR, node VARCHAR, "case" VARCHAR, attempt INTEGER,
    benchmark VARCHAR, case_placement VARCHAR, conditions VARCHAR, build VARCHAR, nodes VARCHAR,
    result VARCHAR, reason VARCHAR, case_waiver VARCHAR, output VARCHAR, seconds DOUBLE);
CREATE TABLE figures (
    file INTEGER, line INTEGER, metric VARCHAR, size BIGINT, location VARCHAR, placement VARCHAR,
    value DOUBLE, unit VARCHAR, better VARCHAR, samples DOUBLE[], lower DOUBLE, upper DOUBLE,
    ceiling DOUBLE, verdict VARCHAR, near_bound BOOLEAN, reference VARCHAR, waiver VARCHAR,
    across INTEGER);
CREATE TABLE faults (file INTEGER, place VARCHAR, why VARCHAR);
CREATE TABLE aside (session VARCHAR, state VARCHAR, place VARCHAR, why VARCHAR);
CREATE VIEW flat AS
FROM files LEFT JOIN cases USING (file) LEFT JOIN figures USING (file, line);
-- Before DuckDB 1.5, array_to_string of an empty list is NULL.
CREATE MACRO pairs(map) AS coalesce(array_to_string(
    list_sort(list_transform(map_entries(map), lambda e: e.key || '=' || e.value)), ';'), '');
-- Without what ReFrame adds for --distribute and --repeat, such as " %.nid=node1".
CREATE MACRO plain(name) AS regexp_replace(name, '{ADDED}', '', 'g');
CREATE MACRO pinned(name) AS regexp_extract(name, ' %\.nid=(\S+)', 1);
"""

#: The fields of a record in the index.
_SHAPE = json.dumps(
    {
        **dict.fromkeys(("system", "partition", "environment", "check"), "VARCHAR"),
        **dict.fromkeys(("case", "benchmark", "placement", "result", "reason"), "VARCHAR"),
        **dict.fromkeys(("waiver", "output"), "VARCHAR"),
        **dict.fromkeys(("conditions", "build"), "MAP(VARCHAR, VARCHAR)"),
        "time": "VARCHAR",
        "seconds": {"total": "DOUBLE"},
        "attempt": "INTEGER",
        "nodes": ["VARCHAR"],
        "foms": [
            {
                **dict.fromkeys(("metric", "location", "placement", "unit", "better"), "VARCHAR"),
                **dict.fromkeys(("verdict", "reference", "waiver"), "VARCHAR"),
                **dict.fromkeys(("value", "lower", "upper", "ceiling"), "DOUBLE"),
                **dict.fromkeys(("size", "across"), "BIGINT"),
                "near_bound": "BOOLEAN",
                "samples": ["DOUBLE"],
            }
        ],
    }
)

#: Other fields, which DuckDB need not parse.
_UNUSED: Any = {
    **dict.fromkeys(("hosts", "variables", "network", "devices", "processors"), True),
    **dict.fromkeys(("tasks", "tags", "extras", "warnings"), True),
    "foms": {"__all__": {"summary", "others", "statistic", "reason", "headline", "tolerance"}},
}

_STAGE = """
CREATE OR REPLACE TEMP TABLE staged AS
SELECT unnest($file) AS file, unnest($line) AS line,
    json_transform(unnest(string_split($text, chr(10))), $shape) AS r
"""

_INSERT = """
INSERT INTO cases
SELECT file, line, r.time::TIMESTAMP_S, r.system, r.partition, r.environment, plain(r."check"),
    pinned(r."check"), r."case", r.attempt, coalesce(r.benchmark, ''), coalesce(r.placement, ''),
    pairs(r.conditions),
    CASE WHEN cardinality(r.build) = 0 THEN '' ELSE md5(pairs(r.build))[:12] END,
    coalesce(array_to_string(r.nodes, ','), ''), r.result, coalesce(r.reason, ''),
    coalesce(r.waiver, ''), coalesce(r.output, ''), r.seconds.total
FROM staged;
INSERT INTO figures
SELECT file, line, f.metric, coalesce(f.size, -1), f.location, f.placement, f.value, f.unit,
    f.better, f.samples, f.lower, f.upper, f.ceiling, f.verdict, f.near_bound,
    coalesce(f.reference, ''), coalesce(f.waiver, ''), f.across
FROM (SELECT file, line, unnest(r.foms) AS f FROM staged)
"""

_SESSIONS = """
INSERT INTO files
SELECT unnest($file), unnest($session), unnest($state), unnest($session_system),
    unnest($start)::TIMESTAMP_S, unnest($stop)::TIMESTAMP_S, unnest($back),
    from_json(unnest($extras), '"MAP(VARCHAR, VARCHAR)"'), unnest($planned::INTEGER[]),
    unnest($missing::INTEGER[])
"""


class _Session:
    """Reads the files of a session.

    :ivar faults: place and reason of what is skipped.
    :ivar lines: the line of each case and attempt.
    :ivar valid: whether the session is not skipped as a whole.
    """

    def __init__(self, folder: Path, file: int, state: str):
        self.folder, self.file, self.state = folder, file, state
        self.faults: list[tuple[str, str]] = []
        self.lines: dict[tuple[str, int], int] = {}
        self.plan: session_files.Plan | None = None
        self.first: record.Record | None = None
        self.stop, self.back, self.wrong, self.valid = "", False, 0, True
        try:
            self.plan = session_files.read_plan(folder)
            self._expect_own("plan.json", self.plan["session"])
        except FileNotFoundError:
            pass
        except record.Damaged as err:
            self.faults.append(("plan.json", f"cannot be read: {err}"))

    def _expect_own(self, place: str, session: str) -> None:
        """Skip the session as a whole if a plan or record in its folder is of another one."""
        if session != self.folder.name:
            reason = f"it is of session {session!r}: remove this copy, or rename the folder back"
            self.faults, self.valid = [(place, reason)], False

    def records(self) -> Iterator[tuple[int, record.Record]]:
        """Yield the number of each valid line and its record, one for each case and attempt."""
        try:
            file = files.open_binary(self.folder / "records.jsonl")
        except FileNotFoundError:
            return
        with file:
            for number, line in enumerate(file, 1):
                if line.isspace():
                    continue
                try:
                    fields = record.parse(line)
                    if self.first is None and self.plan is None:
                        self._expect_own(f"records.jsonl:{number}", fields.session)
                        if not self.valid:
                            return
                    self._take(number, fields)
                except record.Damaged as err:
                    if not line.endswith(b"\n") and running.is_running(self.folder):
                        # It is being written: read it again, whatever becomes of the session.
                        self.state = ""
                        break
                    self.wrong += 1
                    if self.wrong <= _MAX_LISTED:
                        self.faults.append((f"records.jsonl:{number}", str(err)))
                    elif self.wrong == _MAX_LISTED + 1:
                        last = number
                else:
                    yield number, fields
        if self.wrong > _MAX_LISTED:
            more = self.wrong - _MAX_LISTED - 1
            reason = f"not a valid record, and {more} more lines below are not"
            self.faults.append((f"records.jsonl:{last}", reason))

    def _take(self, number: int, fields: record.Record) -> None:
        """Register a record.

        :raises Damaged: if it is of another session, or a duplicate.
        """
        if fields.session != self.folder.name:
            raise record.Damaged(f"session: a record of session {fields.session!r}")
        key = fields.case, fields.attempt
        above = self.lines.setdefault(key, number)
        if above != number:
            raise record.Damaged(
                f"case: a duplicate of case {key[0]!r}, attempt {key[1]}: line {above} counts"
            )
        self.first = self.first or fields
        self.back = self.back or fields.time < self.stop
        self.stop = fields.time

    def row(self) -> dict[str, Any]:
        """Return the row of the session, which has a plan or a record, in the index."""
        changed = time.gmtime(self.folder.stat().st_mtime)
        then = time.strftime("%Y-%m-%dT%H:%M:%SZ", changed)
        about: Mapping[str, Any] = self.plan or vars(self.first)
        planned = {*self.plan["cases"]} if self.plan else set()
        ended = (self.folder / "end.json").exists()
        return {
            "file": self.file,
            "session": self.folder.name,
            "state": self.state,
            "session_system": about["system"],
            "start": self.first.time if self.first else then,
            "stop": self.stop or then,
            "back": self.back,
            "extras": json.dumps(about["extras"]),
            "planned": len(planned) if self.plan else None,
            "missing": len(planned - {case for case, _ in self.lines}) if ended else 0,
        }


def read(
    db: duckdb.DuckDBPyConnection, folder: Path, files: dict[str, int], states: dict[str, str]
) -> None:
    """Read sessions of a results folder into the tables.

    A session is skipped if its plan or records are of another session, or if it has neither.

    :arg files: session -> its new number in the tables.
    :arg states: session -> the state of its files.
    :raises OSError: if a file cannot be read.
    :raises duckdb.Error: if the tables cannot be written.
    """
    rows, faults, aside = [], [], []
    staged: list[tuple[int, int, bytes]] = []
    size = 0
    dump = record.Record.__pydantic_serializer__.to_json
    for name, number in files.items():
        session = _Session(folder / "sessions" / name, number, states[name])
        if session.valid:
            for line, fields in session.records():
                text = dump(fields, exclude=_UNUSED)
                staged.append((number, line, text))
                size += len(text)
                if size >= _AT_ONCE:
                    _store(db, staged)
                    staged, size = [], 0
        if session.valid and (session.plan or session.first):
            rows.append(session.row())
            faults += [(number, *fault) for fault in session.faults]
        else:
            found = session.faults or [("", "neither a plan nor a record")]
            aside += [(name, states[name], *fault) for fault in found]
    _store(db, staged)
    if rows:
        db.execute(_SESSIONS, {column: [row[column] for row in rows] for column in rows[0]})
    if faults:
        db.executemany("INSERT INTO faults VALUES ($1, $2, $3)", faults)
    if aside:
        db.executemany("INSERT INTO aside VALUES ($1, $2, $3, $4)", aside)


def _store(db: duckdb.DuckDBPyConnection, staged: list[tuple[int, int, bytes]]) -> None:
    """Insert records: the number of the session, that of the line, and the fields."""
    if not staged:
        return
    files, lines, texts = zip(*staged, strict=True)
    text = b"\n".join(texts).decode()
    db.execute(_STAGE, {"file": files, "line": lines, "text": text, "shape": _SHAPE})
    db.execute(_INSERT)
