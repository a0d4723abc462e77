"""From the lines of records to the tables of the history's index, by DuckDB."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import duckdb

from plumbline import record

#: Faulty lines of one file that are told singly.
_MOST_TOLD = 20
#: Bytes of lines that are read at once.
_AT_ONCE = 16 << 20

#: ``start`` and ``stop`` are those of a session's first and last line, ``back`` is whether a line's
#: time lies before that of the line above, and ``planned`` is NULL without a plan. Lines count from
#: 1. ``flat`` has a row for each figure, each case without one, and each session without a case.
TABLES = r"""
CREATE TABLE about (version VARCHAR);
CREATE TABLE files (
    file INTEGER, session VARCHAR, state VARCHAR, session_system VARCHAR, start TIMESTAMP_S,
    stop TIMESTAMP_S, back BOOLEAN, extras MAP(VARCHAR, VARCHAR), planned INTEGER);
CREATE TABLE cases (
    file INTEGER, line INTEGER, time TIMESTAMP_S, system VARCHAR, partition VARCHAR,
    environment VARCHAR, "check" VARCHAR, node VARCHAR, "case" VARCHAR, attempt INTEGER,
    benchmark VARCHAR, case_placement VARCHAR, conditions VARCHAR, build VARCHAR, nodes VARCHAR,
    result VARCHAR, reason VARCHAR, case_waiver VARCHAR, output VARCHAR, seconds DOUBLE);
CREATE TABLE figures (
    file INTEGER, line INTEGER, metric VARCHAR, size BIGINT, "at" VARCHAR, placement VARCHAR,
    value DOUBLE, unit VARCHAR, better VARCHAR, samples DOUBLE[], lower DOUBLE, upper DOUBLE,
    ceiling DOUBLE, verdict VARCHAR, near BOOLEAN, reference VARCHAR, waiver VARCHAR);
CREATE TABLE faults (file INTEGER, place VARCHAR, why VARCHAR);
CREATE VIEW flat AS
FROM files LEFT JOIN cases USING (file) LEFT JOIN figures USING (file, line);
CREATE MACRO pairs(map) AS array_to_string(
    list_sort(list_transform(map_entries(map), lambda e: e.key || '=' || e.value)), ';');
-- Without what ReFrame adds for --distribute and --repeat, such as " %.nid=node1".
CREATE MACRO plain(name) AS regexp_replace(name, ' %\.\S+', '', 'g');
-- NULL where it is no time, or not UTC.
CREATE MACRO utc(text) AS CASE WHEN text LIKE '%Z' THEN try_cast(text AS TIMESTAMP_S) END;
CREATE MACRO pinned(name) AS regexp_extract(name, ' %\.nid=(\S+)', 1);
"""

#: What is read of a line; what is not there, or of another type, is NULL.
_SHAPE = json.dumps(
    {
        "schema": "INTEGER",
        **dict.fromkeys(("session", "system", "partition", "environment", "check"), "VARCHAR"),
        **dict.fromkeys(("case", "benchmark", "placement", "result", "reason"), "VARCHAR"),
        **dict.fromkeys(("waiver", "output"), "VARCHAR"),
        **dict.fromkeys(("conditions", "build", "extras"), "MAP(VARCHAR, VARCHAR)"),
        "time": "VARCHAR",
        "seconds": {"total": "DOUBLE"},
        "attempt": "INTEGER",
        "nodes": ["VARCHAR"],
        "foms": [
            {
                **dict.fromkeys(("metric", "at", "placement", "unit", "better"), "VARCHAR"),
                **dict.fromkeys(("verdict", "reference", "waiver"), "VARCHAR"),
                **dict.fromkeys(("value", "lower", "upper", "ceiling"), "DOUBLE"),
                "size": "BIGINT",
                "near": "BOOLEAN",
                "samples": ["DOUBLE"],
            }
        ],
    }
)

_STAGE = """
CREATE OR REPLACE TEMP TABLE staged AS
SELECT file, line, r, utc(r.time) AS time
FROM (
    SELECT file, line, try(json_transform(text, $shape)) AS r
    FROM (
        SELECT file, unnest(lines) AS text, above + generate_subscripts(lines, 1) AS line
        FROM (
            SELECT file, above, string_split(text, chr(10)) AS lines
            FROM (SELECT unnest($file) AS file, unnest($above) AS above, unnest($text) AS text)))
    WHERE trim(text) <> '')
"""

_WRONG = """
CREATE OR REPLACE TEMP TABLE wrong AS
SELECT file, line FROM staged
WHERE NOT coalesce(
    r.schema BETWEEN 1 AND $newest AND r.result IN (SELECT unnest($results))
    AND (r.session || r.system || r.partition || r.environment) IS NOT NULL
    AND (r."check" || r."case") IS NOT NULL AND r.attempt IS NOT NULL AND time IS NOT NULL
    AND r.nodes IS NOT NULL AND r.conditions IS NOT NULL AND r.build IS NOT NULL
    AND r.extras IS NOT NULL
    AND len(r.foms) = len(list_filter(r.foms, lambda f:
        (f.metric || f.unit || f.verdict) IS NOT NULL AND isfinite(f.value)
        AND list_count(f.samples) = len(f.samples) AND isfinite(list_sum(f.samples)))),
    false)
"""

_INSERT = (
    """
INSERT INTO cases
SELECT file, line, time, r.system, r.partition, r.environment, plain(r."check"),
    pinned(r."check"), r."case", r.attempt, coalesce(r.benchmark, ''), coalesce(r.placement, ''),
    pairs(r.conditions),
    CASE WHEN cardinality(r.build) = 0 THEN '' ELSE md5(pairs(r.build))[:12] END,
    array_to_string(r.nodes, ','), r.result, coalesce(r.reason, ''), coalesce(r.waiver, ''),
    coalesce(r.output, ''), r.seconds.total
FROM staged
""",
    """
INSERT INTO figures
SELECT file, line, f.metric, coalesce(f.size, -1), coalesce(f."at", ''),
    coalesce(f.placement, placement, ''), f.value, f.unit, coalesce(f.better, ''), f.samples,
    f.lower, f.upper, f.ceiling, f.verdict, coalesce(f.near, false), coalesce(f.reference, ''),
    coalesce(f.waiver, '')
FROM (SELECT file, line, r.placement AS placement, unnest(r.foms) AS f FROM staged)
""",
)

_SESSIONS = """
INSERT INTO files
SELECT file, session, state, coalesce(system, first_system, ''),
    coalesce(start, make_timestamp(changed)), coalesce(stop, make_timestamp(changed)),
    coalesce(back, false), from_json(extras, '"MAP(VARCHAR, VARCHAR)"'), planned
FROM (
    SELECT unnest($file) AS file, unnest($session) AS session, unnest($state) AS state,
        unnest($changed::BIGINT[]) AS changed, unnest($system::VARCHAR[]) AS system,
        unnest($extras::VARCHAR[]) AS extras, unnest($planned::INTEGER[]) AS planned)
LEFT JOIN (
    SELECT file, min_by(system, line) AS first_system, min_by(time, line) AS start,
        max_by(time, line) AS stop, bool_or(before) AS back
    FROM (
        SELECT *, time < lag(time) OVER (PARTITION BY file ORDER BY line) AS before
        FROM cases WHERE file >= list_min($file))
    GROUP BY file) USING (file)
"""


def read_records(db: duckdb.DuckDBPyConnection, folder: Path, files: dict[str, int]) -> None:
    """Reads the records of sessions of a results folder into the tables.

    :arg files: the number that each session gets, which none of the tables has.
    :raises OSError: if a file cannot be read.
    :raises duckdb.Error: if the tables cannot be written.
    """
    results = record.validator().schema["properties"]["result"]["enum"]
    for pieces in _pieces(folder, files):
        staged = {
            "file": list(pieces),
            "above": [above for above, _ in pieces.values()],
            "text": [_text(data) for _, data in pieces.values()],
        }
        db.execute(_STAGE, staged | {"shape": _SHAPE})
        db.execute(_WRONG, {"newest": record.SCHEMA, "results": results})
        _tell_wrong(db, pieces)
        db.execute("DELETE FROM staged WHERE (file, line) IN (SELECT (file, line) FROM wrong)")
        for statement in _INSERT:
            db.execute(statement)


def read_sessions(
    db: duckdb.DuckDBPyConnection, folder: Path, files: dict[str, int], states: dict[str, str]
) -> None:
    """Reads the plans of sessions, after their records, into the tables.

    :arg states: what the index knows each session's files by.
    :raises OSError: if a file cannot be read.
    :raises duckdb.Error: if the tables cannot be written.
    """
    if not files:
        return
    folders = [folder / "sessions" / session for session in files]
    plans = [_plan(found) for found in folders]
    columns = {
        "file": list(files.values()),
        "session": list(files),
        "state": [states[session] for session in files],
        "changed": [found.stat().st_mtime_ns // 1000 for found in folders],
        **{name: [plan[name] for plan in plans] for name in ("system", "extras", "planned")},
    }
    db.execute(_SESSIONS, columns)
    broken = [file for file, plan in zip(files.values(), plans, strict=True) if plan["broken"]]
    db.execute("INSERT INTO faults SELECT unnest($1), 'plan.json', 'no whole plan'", [broken])


def _plan(session: Path) -> dict:
    """What a session's plan says of it; without one, what its first record does."""
    found = {"system": None, "planned": None, "broken": False}
    try:
        told = json.loads((session / "plan.json").read_bytes())
        found |= {"system": told.get("system"), "planned": len(told["cases"])}
    except FileNotFoundError:
        told = {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        told, found["broken"] = {}, True
    if not told and (session / "records.jsonl").exists():
        with (session / "records.jsonl").open("rb") as file, contextlib.suppress(ValueError):
            told = json.loads(file.readline())
    extras = told.get("extras") if isinstance(told, dict) else None
    return found | {"extras": json.dumps(extras if isinstance(extras, dict) else {})}


def _pieces(folder: Path, files: dict[str, int]) -> Iterator[dict[int, tuple[int, bytes]]]:
    """Whole lines of records, some megabytes at once: number of the file -> lines above, bytes."""
    pieces, size = {}, 0
    for session, number in files.items():
        path = folder / "sessions" / session / "records.jsonl"
        if not path.exists():
            continue
        above = 0
        with path.open("rb") as file:
            while data := file.read(_AT_ONCE - size) + file.readline():
                pieces[number] = above, data
                above += data.count(b"\n")
                size += len(data)
                if size >= _AT_ONCE:
                    yield pieces
                    pieces, size = {}, 0
    if pieces:
        yield pieces


def _text(data: bytes) -> str:
    """Lines as text; one that is none stays a line, of something that is no record."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "\n".join(line.decode() if _is_text(line) else "?" for line in data.split(b"\n"))


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _tell_wrong(db: duckdb.DuckDBPyConnection, pieces: dict[int, tuple[int, bytes]]) -> None:
    """Finds out why lines are no records; few are, and so each is looked at by itself."""
    faults = []
    for file, wrong in db.execute(
        "SELECT file, list(line ORDER BY line) FROM wrong GROUP BY file ORDER BY file"
    ).fetchall():
        above, data = pieces[file]
        lines = data.split(b"\n")
        for number in wrong[:_MOST_TOLD]:
            faults.append((file, f"records.jsonl:{number}", why(lines[number - above - 1])))
        if len(wrong) > _MOST_TOLD:
            told = f"records.jsonl:{wrong[_MOST_TOLD]}"
            faults.append(
                (file, told, f"no record, nor are {len(wrong) - _MOST_TOLD - 1} lines below")
            )
    if faults:
        db.executemany("INSERT INTO faults VALUES ($1, $2, $3)", faults)


def why(line: bytes) -> str:
    """Why a line is no record that the history can read."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as err:
        return f"no whole record: {err}"
    if not isinstance(fields, dict) or "schema" not in fields:
        return "no record of Plumbline's: another tool's, or ReFrame's own?"
    if isinstance(fields["schema"], int) and fields["schema"] > record.SCHEMA:
        return f"of schema {fields['schema']}: written by a newer Plumbline"
    fault = next(record.validator().iter_errors(record.renewed(fields)), None)
    if fault is None:
        try:
            json.dumps(fields, ensure_ascii=False).encode()
        except UnicodeEncodeError as err:
            half = ascii(err.object[err.start])[1:-1]
            return f"a text that is no Unicode: {half} is half of a surrogate pair"
        return "a time that is not UTC, or a value that is not finite"
    return f"{fault.json_path}: {fault.message[:200]}"
