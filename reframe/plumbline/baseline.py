"""Site baselines: from a facility's own records to reference rows."""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from plumbline import record
from plumbline.errors import Fault
from plumbline.table import SITE, Row

#: Columns of ``reference/site/<system>.csv``.
COLUMNS = [name for name in Row.model_fields if name not in ("value_used", "unit_used")]

#: Makes the median absolute deviation of normal values their standard deviation.
_MAD_TO_STD = 1.4826


def records_of(system: str, results: Path) -> list[dict]:
    """All records of a system, oldest session first.

    :raises Fault: if a session's file holds a line that is no record.
    """
    files = [folder / "records.jsonl" for folder in record.sessions(results)]
    found = [fields for path in files if path.exists() for fields in record.read(path)]
    return [fields for fields in found if fields["system"] == system]


def propose(system: str, records: Iterable[dict], least: int) -> tuple[list[Row], list[str]]:
    """Baseline rows, median and robust spread over the sessions, and what was left out and why.

    Only sessions with the newest build of a case count: another build is another machine. A
    session counts once, with the median of its cases.

    :arg least: sessions below which no row is made.
    """
    cases: dict[str, list[dict]] = defaultdict(list)
    for fields in records:
        if fields["foms"]:
            cases[fields["case"]].append(fields)
    rows, left_out = [], []
    for runs in cases.values():
        newest = runs[-1]
        same = [run for run in runs if run["build"] == newest["build"]]
        sessions = sorted({run["session"] for run in same})
        if len(sessions) < least:
            name = f"{newest['check']} @{newest['partition']}+{newest['environment']}"
            left_out.append(
                f"{name}: {len(sessions)} session(s) with its build, {least} are needed"
            )
            continue
        rows += _rows_of(system, newest, same, sessions)
    return rows, left_out


def _rows_of(system: str, newest: dict, runs: list[dict], sessions: list[str]) -> list[Row]:
    values: dict[tuple, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for fom in run["foms"]:
            if fom["verdict"] != "above-ceiling":
                figure = fom["metric"], fom["size"], fom["unit"]
                values[figure][run["session"]].append(statistics.median(fom["samples"]))
    per_node = Counter(task["host"] for task in newest["tasks"])
    conditions = {"partition": newest["partition"], **newest["conditions"]}
    rows = []
    for (metric, size, unit), by_session in values.items():
        if len(by_session) < len(sessions):
            continue
        medians = [statistics.median(found) for found in by_session.values()]
        middle = statistics.median(medians)
        spread = _MAD_TO_STD * statistics.median(abs(m - middle) for m in medians)
        what = [newest["environment"], newest["benchmark"], metric, size, newest["placement"]]
        told = [str(part) for part in [system, newest["partition"], *what] if part is not None]
        told += newest["conditions"].values()
        rows.append(
            Row(
                id="-".join(told),
                source=SITE,
                locator=f"median of {len(by_session)} sessions",
                system=system,
                toolchain=newest["environment"],
                benchmark=newest["benchmark"],
                metric=metric,
                placement=newest["placement"],
                message_size=size,
                nodes=len(per_node),
                ppn=max(per_node.values()),
                conditions=conditions,
                value=float(f"{middle:.6g}"),
                spread=float(f"{min(spread, middle):.3g}"),
                unit=unit,
                statistic="median",
                kind="measured",
                sessions=" ".join(sessions),
                date=newest["time"][:10],
            )
        )
    return rows


def to_csv(rows: list[Row]) -> str:
    """The rows as a table's text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in sorted(rows, key=lambda row: row.id):
        cells = row.model_dump(include=set(COLUMNS))
        cells["conditions"] = ";".join(f"{k}={v}" for k, v in sorted(row.conditions.items()))
        writer.writerow({k: "" if v is None else v for k, v in cells.items()})
    return text.getvalue()


def save(path: Path, rows: list[Row], accept: bool) -> None:
    """Writes a site's table; one that is there is replaced only when that is accepted.

    :raises Fault: if the table is there and would change.
    """
    text = to_csv(rows)
    if path.exists() and path.read_text(encoding="utf-8") != text and not accept:
        raise Fault(f"{path} is there and would change: say --accept to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
