"""What is found in real series, beside Otava: reports night by night, and labelled changes.

``python -m bench.real FILE...`` in ``tests/`` judges series of files that ``plumbline trend
--input`` reads; ``--write`` also writes ``docs/detection-real.md``. A further column ``label`` has
a 1 on the first night of each change that the publishers of a series name. The series are not ours
to distribute: the page says where they are from.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
from nights import Nights, Plan
from plumbline.analysis.trend import nights_file, partition
from tabulate import tabulate

from bench import arguments, methods, publish
from bench.methods import OURS, Report, otava_version

#: A label is found by a report that begins so many nights from it, in its first so many nights.
NEAR, SOON = 3, 14
METHODS = [OURS, *(["Otava"] if otava_version() else []), "KernelCPD, 3 BIC"]

PAGE = """# Changes in real series

Rendered by `python -m bench.real FILE... --write` (in `tests/`); do not edit.

What `plumbline trend` reports in series that others have measured and published, beside other
methods. The other [figures](detection.md) are of synthetic series, whose truth is known; here it
is what the publishers name, if they do.

- `tigerbeetle`: throughput of 365 nights, from the tests of Apache Otava
  (`tests/tigerbeetle_test.py`). They name changes at 16, 71 and 97 and a slope after it; the first
  is before the 21st night, from which on a series is judged.
- `mongodb-robust`, `mongodb-real`: 173 and 132 values, from the tests of MongoDB's
  signal-processing-algorithms (`tests/data/robust_series.json`, `real_series.json`). They name no
  changes.

Mozilla's series, whose changes eleven of its engineers have annotated (REALISE-Performance), are
not here: the repository could not be copied to where this was measured, for its size.

Judged night by night on {date}: a report depends only on the nights up to it. Each is the first
changed night, the size, and in brackets how many nights after it the change was reported (0: on
that night), and its kind if it is no lasting change. Single nights that were reported as
unconfirmed, and came back, are not listed. {otava}

{found}

Labels found: dated to within {near} nights, and reported in their first {soon}. Other reports need
not be false, since the publishers do not say that they name all changes.

{labels}

"""


def labels(path: Path) -> dict[str, list[int]]:
    """Return each series' labelled nights, counted from its first row."""
    found: dict[str, list[int]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        counts: dict[str, int] = {}
        for row in csv.DictReader(file):
            night = counts.setdefault(row["series"], 0)
            counts[row["series"]] += 1
            if row.get("label") == "1":
                found.setdefault(row["series"], []).append(night)
    return found


def text(report: Report) -> str:
    kind = "" if report.kind == "lasting" else f", {report.kind}"
    # KernelCPD's and our sizes are of different statistics; both are relative.
    return f"{report.start}: {report.size:+.1%} ({report.night - report.start}{kind})"


def hits(reports: list[Report], wanted: list[int]) -> int:
    """How many labels are found."""
    return sum(
        any(abs(r.start - label) <= NEAR and r.night - label < SOON for r in reports)
        for label in wanted
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    given = parser.parse_args()
    rows, counted = [], []
    for path in given.files:
        named = labels(path)
        for series in nights_file.read(path):
            values = series.values[None]
            made = Nights(Plan(), values, np.full_like(values, np.nan), np.empty((1, 0), int))
            wanted = [n for n in named.get(series.name, []) if n >= partition.WARM_UP]
            cells = []
            for method in METHODS:
                (reports,) = methods.run(method, made)
                late = [r for r in reports if r.night >= partition.WARM_UP]
                rows.append([series.name, method, "; ".join(map(text, late)) or "none"])
                cells.append(f"{hits(late, wanted)} of {len(wanted)}" if wanted else "no labels")
            counted.append([series.name, len(series.values), *cells])
    version = f"Otava is version {otava_version()}, with its defaults." if otava_version() else ""
    page = PAGE.format(
        found=tabulate(rows, ["series", "method", "reports"], tablefmt="github"),
        labels=tabulate(counted, ["series", "nights", *METHODS], tablefmt="github"),
        near=NEAR, soon=SOON, date=time.strftime("%Y-%m-%d"), otava=version,
    )  # fmt: skip
    publish("detection-real", page, given.write)


if __name__ == "__main__":
    main()
