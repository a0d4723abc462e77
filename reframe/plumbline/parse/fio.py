"""fio 3, ``--output-format=json`` with ``--group_reporting``: one group, one direction.

``write_bandwidth`` and ``read_bandwidth`` are ``bw_bytes`` (B/s); fio's ``bw`` is KiB/s.
"""

from __future__ import annotations

import json
import re
from typing import Any

from plumbline.parse import Fom, Output, ParseError, json_report, quoted


def parse(text: str) -> Output:
    """Reads the JSON report of one run of ``fio``.

    :raises ParseError: if it is no such report, a job failed, or its numbers disagree.
    """
    # fio prints warnings of its own before the report.
    start = re.search(r"^\{", text, re.M)
    try:
        report = json.loads(
            text[start.start() :] if start else text, object_pairs_hook=_each_once, parse_int=_int
        )
        version = report["fio version"]
        jobs = report["jobs"]
        if not isinstance(version, str) or not version.startswith("fio-"):
            raise ParseError(f"unknown version {version!r}")
        if len(jobs) != 1:
            raise ParseError(f"{len(jobs)} groups of jobs, expected one (--group_reporting)")
        (job,) = jobs
        if _count(job, "error"):
            raise ParseError(
                f"fio's job failed with error {job['error']}", code="output.program-error"
            )
        foms = [
            _direction(job, name) for name in ("read", "write") if _count(job[name], "io_bytes")
        ]
    except (json.JSONDecodeError, RecursionError) as err:
        raise ParseError(json_report.unread(err)) from None
    except (KeyError, TypeError, AttributeError) as err:
        raise ParseError(f"the report lacks a field or has another shape: {err!r}") from None
    if len(foms) != 1:
        raise ParseError(f"{len(foms)} directions moved data, expected one")
    return Output(tuple(foms), None, version)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ParseError("a field stands twice in one object of the report")
    return fields


def _int(digits: str) -> int:
    if len(digits) > 19:
        raise ParseError(f"a whole number of {len(digits)} digits is no count of fio's")
    return int(digits)


def _count(fields: dict[str, Any], key: str) -> int:
    value = fields[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ParseError(f"{key}: {quoted(value)} is no count")
    return value


def _direction(job: dict[str, Any], name: str) -> Fom:
    fields = job[name]
    rate, kibibytes = _count(fields, "bw_bytes"), _count(fields, "bw")
    if rate // 1024 != kibibytes:
        raise ParseError(f"{name}: bw_bytes {rate} B/s and bw {kibibytes} KiB/s disagree")
    runtime = _count(fields, "runtime")
    moved = _count(fields, "io_bytes")
    # The runtime is printed in whole milliseconds.
    if (
        not moved * 1000 / (runtime + 1) * 0.99
        <= rate
        <= moved * 1000 / max(runtime - 1, 1e-3) * 1.01
    ):
        raise ParseError(f"{name}: {moved} bytes in {runtime} ms cannot be {rate} B/s")
    if _count(fields, "short_ios") or _count(fields, "drop_ios"):
        raise ParseError(f"{name}: short or dropped transfers", code="output.program-error")
    return Fom(f"{name}_bandwidth", float(rate), "B/s")
