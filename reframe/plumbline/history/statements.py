"""The statements of the history's queries of its index, and the condition of a selection in them.

In a statement, ``WANTED`` is that condition. Of most, a row is a figure (of the view ``flat``).
"""

from __future__ import annotations

import datetime
import re
from typing import Any

from plumbline.check import record
from plumbline.check.record import MEASURED
from plumbline.history.series import Selection

#: Results of cases whose session was cut off.
CUT_OFF = ("aborted", "unfinished")

#: Field of a selection -> columns of ``flat`` that it may match. A check may be named with or
#: without its parameters, as in a waiver.
COLUMNS = {
    "system": ["coalesce(system, session_system)"],
    "partition": ["partition"],
    "environment": ["environment"],
    "check": ["""split_part("check", ' ', 1)""", '"check"'],
    "benchmark": ["benchmark"],
    "node": ["node"],
    "metric": ["metric"],
    "placement": ["coalesce(placement, case_placement)"],
}

#: The columns that identify a series, in the order of :class:`Key`.
KEY = 'system, partition, environment, "check", metric, size, location, placement, conditions, node'
#: The order of sessions, and of the cases within each.
ORDER = "start, session, line"

#: Of the measurements that are in series. Only first attempts are, whose verdicts count: a retry
#: that passes would hide what failed. Those of a duet were made beside another side's, and two
#: builds of one night are not two values of one series; `plumbline compare --duet` reads them.
MEASUREMENTS = f"""result IN {MEASURED} AND metric IS NOT NULL AND attempt = 0
    AND NOT coalesce(map_contains(extras, '{record.DUET}-a'), false)"""

#: The number of a series, by which sorting and grouping take a fraction of the time. Of 50,000
#: series, two have the same in one of 10 billion histories.
NUMBER = f"hash({KEY})"

KEYS = f"""
SELECT any_value(struct_pack({KEY})) AS key, {NUMBER} AS series, count(*), min(unit) != max(unit),
    arg_max(struct_pack(benchmark, unit, better), (start, session, line))
FROM flat WHERE {MEASUREMENTS} AND WANTED
GROUP BY series ORDER BY key
"""
#: The number of series and values of each check.
CHECKS = f"""
SELECT system, "check", count(*), sum(number)::BIGINT, max(number) FROM (
    SELECT system, "check", {NUMBER} AS series, count(*) AS number
    FROM flat WHERE {MEASUREMENTS} AND WANTED GROUP BY ALL)
GROUP BY ALL ORDER BY ALL
"""
OF_CHECKS = """
AND (system, "check") IN (SELECT unnest($of_systems), unnest($of_checks))
"""
#: Of single nodes, and of pairs of nodes.
OF_UNITS = """
AND (node != '' OR NOT contains(nodes, ',') OR contains(location, ':'))
"""
#: What each session measured so: numbers of the nodes.
UNITS = f"""
SELECT session, list(DISTINCT hash(unit)) FROM (
    SELECT session, unnest(string_split(nodes, ',')) AS unit
    FROM (SELECT DISTINCT session, nodes FROM flat WHERE {MEASUREMENTS} AND WANTED))
GROUP BY session ORDER BY session
"""
#: The texts of values, of which few are different, have a number too: DuckDB returns a new text for
#: each row.
TEXTS = f"""
SELECT hash(verdict, reference, build, nodes, unit) AS texts,
    any_value(struct_pack(verdict, reference, build, nodes, unit))
FROM flat WHERE {MEASUREMENTS} AND WANTED
GROUP BY texts ORDER BY texts
"""
VALUES = f"""
SELECT file, hash(verdict, reference, build, nodes, unit) AS texts, time AS times,
    value AS "values", coalesce(lower, 'nan') AS lower, coalesce(upper, 'nan') AS upper,
    coalesce(ceiling, 'nan') AS ceiling, coalesce(across, -1) AS across,
    coalesce(near_bound, false) AS near_bound, coalesce(len(samples), 0)::INTEGER AS taken SAMPLES
FROM flat WHERE {MEASUREMENTS} AND WANTED
ORDER BY {NUMBER}, {ORDER}
"""
CASES = f"""
SELECT session, time, system, partition, environment, "check", "case", attempt, benchmark,
    case_placement, result, reason, case_waiver,
    CASE WHEN nodes = '' THEN [] ELSE string_split(nodes, ',') END, node, build, output
FROM files JOIN cases USING (file) WHERE WANTED ORDER BY {ORDER}
"""
#: Cases, by what identifies them in every session, in the order of their first ones.
RAN = f"""
SELECT system, partition, environment, "check", node, count(DISTINCT session),
    arg_max(struct_pack(session, time, placement := case_placement), (start, session, line))
FROM files JOIN cases USING (file) WHERE WANTED
GROUP BY system, partition, environment, "check", node ORDER BY min(({ORDER}))
"""
#: Of the given plans, the cases without a record.
MISSING = """
WITH plans AS (
    SELECT unnest($names) AS session, unnest($cases) AS "case", unnest($systems) AS system,
        unnest($partitions) AS partition, unnest($environments) AS environment,
        plain(unnest($checks)) AS "check", pinned(unnest($checks)) AS node)
SELECT session, system, partition, environment, "check", node
FROM plans JOIN files USING (session) ANTI JOIN cases USING (file, "case")
WHERE WANTED ORDER BY start, session, "case"
"""
OF_IDENTITIES = """
AND (partition, environment, "check", node) IN (
    SELECT unnest($partitions), unnest($environments), unnest($checks), unnest($nodes))
"""
OF_CASES = ' AND ("case", attempt) IN (SELECT unnest($names), unnest($attempts))'
LINES = """
SELECT session, list(line) FROM files JOIN cases USING (file) WHERE WANTED
GROUP BY start, session ORDER BY start, session
"""
#: Retries are neither results nor verdicts, as of the series; their time was spent.
SESSIONS = """
WITH chosen AS (SELECT * FROM files LEFT JOIN cases USING (file) WHERE WANTED),
judged AS (
    SELECT file, histogram(verdict) AS verdicts FROM chosen JOIN figures USING (file, line)
    WHERE attempt = 0 GROUP BY file)
SELECT session, any_value(session_system), start, any_value(stop), any_value(extras),
    coalesce(any_value(planned), count(DISTINCT "case")),
    coalesce(histogram(result) FILTER (attempt = 0), MAP {}),
    coalesce(any_value(verdicts), MAP {}), count(DISTINCT "case"), sum(seconds)
FROM chosen LEFT JOIN judged USING (file) GROUP BY start, session ORDER BY start, session
"""
#: The nodes that were measured by themselves: by a sweep, or by --distribute. Of a time after
#: ``$ahead``, a clock was wrong.
NODES = f"""
WITH alone AS (
    SELECT *, coalesce(system, session_system) AS of, CASE
        WHEN node != '' THEN node
        WHEN extras['sweep'] IS NOT NULL AND nodes IN ('', extras['node'])
            THEN extras['node'] END AS name
    FROM files JOIN cases USING (file) WHERE WANTED),
ended AS (
    SELECT of, partition, name, start, session, max(time) AS stop, histogram(result) AS results,
        count(*) FILTER (result IN {MEASURED}) > 0 AS measured,
        count(*) FILTER (result IN {CUT_OFF}) = 0 AS whole
    FROM alone WHERE name IS NOT NULL GROUP BY ALL)
SELECT of, partition, name, count(*) FILTER (measured), arg_max(session, (start, session)),
    max(stop) FILTER (measured), arg_max(results, (start, session)),
    max(stop) FILTER (measured AND whole AND stop <= $ahead)
FROM ended GROUP BY of, partition, name HAVING count(*) FILTER (measured) > 0
ORDER BY of, partition, name
"""
#: The nodes that were measured with others, and the pairs of them: those of a case between two
#: nodes, and those that are a figure's location.
TOGETHER = f"""
WITH chosen AS (
    SELECT file, line, coalesce(system, session_system) AS of, partition, start, session, time,
        string_split(nodes, ',') AS names
    FROM files JOIN cases USING (file)
    WHERE result IN {MEASURED} AND contains(nodes, ',') AND WANTED),
units AS (
    SELECT * EXCLUDE (names), [unnest(names)] AS unit FROM chosen
    UNION ALL SELECT * EXCLUDE (names), list_sort(names) FROM chosen WHERE len(names) = 2
    UNION ALL
    SELECT DISTINCT * EXCLUDE (names, location), list_sort(string_split(location, ':'))
    FROM chosen JOIN (SELECT file, line, location FROM figures) USING (file, line)
    WHERE len(names) > 2 AND len(string_split(location, ':')) = 2)
SELECT of, partition, unit, list(DISTINCT session), arg_max(session, (start, session)), max(time)
FROM units GROUP BY of, partition, unit ORDER BY of, partition, unit
"""
FAULTS = """
SELECT session, place, why FROM faults JOIN files USING (file) WHERE WANTED
ORDER BY start, session, faults.rowid
"""
NOTES = """
SELECT session, unnest(list_filter([
    CASE WHEN back
        THEN 'the clock jumped back while it ran: its cases are in the order of their lines' END,
    CASE WHEN planned IS NULL THEN 'no plan.json: its number of planned cases is unknown' END,
    CASE WHEN missing > 0 THEN 'it has ended, but ' || missing || ' of ' || planned
        || ' planned cases have no record: if its output has lines with `plumbline-record`, '
        || 'store them with `plumbline history recover`' END], lambda note: note IS NOT NULL))
FROM files WHERE (back OR planned IS NULL OR missing > 0) AND WANTED ORDER BY start, session
"""
#: The rows of the CSV, with lists, maps and booleans as JSON.
FLAT = f"""
SELECT * EXCLUDE (file, state, missing)
    REPLACE (to_json(extras)::VARCHAR AS extras, to_json(samples)::VARCHAR AS samples,
        back::VARCHAR AS back, near_bound::VARCHAR AS near_bound)
FROM flat WHERE WANTED ORDER BY {ORDER}, metric, size, location
"""


def condition(select: Selection, flat: bool) -> tuple[str, dict[str, Any]]:
    """Return the condition of a selection, and its values.

    :arg flat: whether it selects figures instead of cases.
    """
    conditions, values = ["true"], {}

    def want(condition: str, **given: object) -> None:
        conditions.append(condition)
        values.update(given)

    for name in ("system", "partition", "environment", "check", "benchmark", "node"):
        if pattern := getattr(select, name):
            matches = [f"{column} GLOB ${name}" for column in COLUMNS[name]]
            want(f"({' OR '.join(matches)})", **{name: _pattern(pattern)})
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
    """Return a pattern for DuckDB's GLOB, in which only ``*`` and ``?`` are wildcards, and neither
    as ``[*]`` and ``[?]``."""
    return re.sub(r"\[(?![*?]\])", "[[]", text)


def _utc(time: datetime.datetime) -> datetime.datetime:
    """Return a time in UTC without a time zone, as in the index."""
    return time.astimezone(datetime.timezone.utc).replace(tzinfo=None) if time.tzinfo else time
