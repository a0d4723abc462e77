"""fio 3, ``--output-format=json`` with ``--group_reporting``: one group, one direction.

``write_bandwidth`` and ``read_bandwidth`` are ``bw_bytes`` (B/s); fio's ``bw`` is in KiB/s.

If a signal ends a job's process, fio reports error 0 and exits with 0. It reports what was moved
until then, and may print :data:`FAILED`, on standard output or error (``backend.c``). The check
compares ``io_bytes`` with the requested size. Nor is it an error for fio that the data could not be
synchronized, or that the page cache, which it drops before it reads, could not be dropped.
"""

from __future__ import annotations

import re
from typing import Any

from plumbline.parse import Fom, Output, ParseError, json_report
from plumbline.parse.json_report import count

#: fio's messages about jobs that a signal or fio itself ended, and about data that is not stored.
FAILED = re.compile(
    r"^(?:fio: (?:terminating on signal \d+|pid=\d+, got signal=\d+|pid=\d+ disappeared|"
    r"job '.*hasn't exited in|\d+ jobs? failed to start|end_fsync failed for)|"
    r"(?:open .* for )?syncfs .*failed).*$",
    re.M,
)

_CACHED = re.compile(r"^fio: cache invalidation of .* failed: .*$", re.M)
_DIRECT = re.compile(r'"direct"\s*:\s*"1"')


def parse(text: str) -> Output:
    """Parse the JSON report of one run of ``fio``.

    :raises ParseError: if it is not such a report, a job failed, or its numbers contradict each
        other.
    """
    if ended := FAILED.search(text):
        raise ParseError(f"fio reports: {ended[0]}", code="output.program-error")
    report = json_report.read(text)
    if not text.rstrip().endswith("}"):
        raise ParseError("a line after the report")
    version = json_report.string(report, "fio version")
    if not version.startswith("fio-"):
        raise ParseError(f"unknown version {version!r}")
    jobs = json_report.objects(report, "jobs")
    if len(jobs) != 1:
        raise ParseError(f"{len(jobs)} groups of jobs, expected one (--group_reporting)")
    if (cached := _CACHED.search(text)) and not _DIRECT.search(text):
        raise ParseError(f"fio reports: {cached[0]}", code="output.program-error")
    if error := count(jobs[0], "error"):
        raise ParseError(f"fio's job failed with error {error}", code="output.program-error")
    directions = {name: json_report.field(jobs[0], name) for name in ("read", "write")}
    moved = {name: count(fields, "io_bytes") for name, fields in directions.items()}
    foms = [_figure(name, directions[name]) for name, volume in moved.items() if volume]
    if len(foms) != 1:
        raise ParseError(f"{len(foms)} directions moved data, expected one")
    return Output(tuple(foms), None, version, {"io_bytes": str(sum(moved.values()))})


def _figure(direction: str, fields: dict[str, Any]) -> Fom:
    rate, kibibytes = count(fields, "bw_bytes"), count(fields, "bw")
    if rate // 1024 != kibibytes:
        raise ParseError(f"{direction}: bw_bytes {rate} B/s contradicts bw {kibibytes} KiB/s")
    moved, runtime = count(fields, "io_bytes"), count(fields, "runtime")
    # The runtime is printed in whole milliseconds.
    slowest, fastest = moved * 1000 / (runtime + 1), moved * 1000 / max(runtime - 1, 1e-3)
    if not slowest * 0.99 <= rate <= fastest * 1.01:
        raise ParseError(f"{direction}: {moved} bytes in {runtime} ms contradict {rate} B/s")
    if count(fields, "short_ios") or count(fields, "drop_ios"):
        raise ParseError(f"{direction}: short or dropped transfers", code="output.program-error")
    return Fom(f"{direction}_bandwidth", float(rate), "B/s")
