"""Site baselines: from a facility's own records to reference rows."""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from plumbline import paths, record, reference
from plumbline.errors import Fault
from plumbline.parse import Figure
from plumbline.table import SITE, Baseline, Row, key_of, read_rows

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


#: What two records must have in common to be of one measurement.
_SAME = ("build", "conditions", "samples", "warmups", "placement")


def propose(
    system: str, records: Iterable[dict], rules: Baseline
) -> tuple[list[Row], dict[str, list[str]]]:
    """Baseline rows, median and robust spread over the sessions; and what was left out: reason ->
    cases or figures.

    Only sessions that passed count, and only those that measured as the newest of the case did:
    with its build, conditions and samples, and on a system `local` on its host. A session counts
    once, with the median of its cases.
    """
    cases: dict[str, list[dict]] = defaultdict(list)
    for fields in records:
        if fields["foms"] and fields["result"] == "pass":
            cases[fields["case"]].append(fields)
    rows: dict[tuple, Row] = {}
    left_out: dict[str, list[str]] = defaultdict(list)
    for runs in cases.values():
        newest = runs[-1]
        same = [run for run in runs if _alike(run, newest)]
        sessions = sorted({run["session"] for run in same})
        name = f"{newest['check']} @{newest['partition']}+{newest['environment']}"
        if len(sessions) < rules.sessions:
            reason = f"fewer than {rules.sessions} sessions that passed with its build"
            left_out[reason].append(f"{name}: {len(sessions)} session(s)")
            continue
        measured = Counter(
            figure
            for session in sessions
            for figure in {f for run in same if run["session"] == session for f in _figures(run)}
        )
        missing = [f.variable for f, count in measured.items() if count < len(sessions)]
        left_out["not measured in every session"] += [f"{name}: {f}" for f in missing]
        for row in _rows_of(system, newest, same, sessions):
            noisy = row.spread > rules.noise * row.value
            if noisy and not _is_distribution(row.benchmark, row.metric):
                left_out[f"spread above {rules.noise:.0%}"].append(row.id)
            elif key_of(row) in rows:
                left_out["measured by another check too"].append(row.id)
            else:
                rows[key_of(row)] = row
    return list(rows.values()), {reason: names for reason, names in left_out.items() if names}


def _figures(run: dict) -> list[Figure]:
    return [Figure(fom["metric"], fom["size"], fom["at"]) for fom in run["foms"]]


def _alike(run: dict, newest: dict) -> bool:
    same_host = newest["system"] != "local" or run["nodes"] == newest["nodes"]
    return same_host and all(run[name] == newest[name] for name in _SAME)


def _is_distribution(benchmark: str, metric: str) -> bool:
    tables = reference.loaded(paths.reference())
    return tables.rule(tables.fom(benchmark, metric)).distribution


def _rows_of(system: str, newest: dict, runs: list[dict], sessions: list[str]) -> list[Row]:
    values: dict[tuple, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for fom in run["foms"]:
            figure = fom["metric"], fom["size"], fom["at"], fom["placement"], fom["unit"]
            values[figure][run["session"]] += fom["samples"]
    per_node = Counter(task["host"] for task in newest["tasks"])
    conditions = {"partition": newest["partition"], **newest["conditions"]}
    if system == "local":
        conditions["host"] = newest["nodes"][0]
    rows = []
    for (metric, size, at, placement, unit), by_session in values.items():
        if len(by_session) < len(sessions):
            continue
        here = {**conditions, **({"at": at} if at else {})}
        if _is_distribution(newest["benchmark"], metric):
            single = [sample for found in by_session.values() for sample in found]
            middle, spread = statistics.fmean(single), statistics.stdev(single)
            statistic, here["runs"] = "mean", str(len(single))
        else:
            medians = [statistics.median(found) for found in by_session.values()]
            middle = statistics.median(medians)
            spread = _MAD_TO_STD * statistics.median(abs(m - middle) for m in medians)
            statistic = "median"
        what = [newest["environment"], newest["check"].split()[0], metric, size, at or None]
        told = [str(part) for part in [system, newest["partition"], *what] if part is not None]
        told += [placement, *newest["conditions"].values()]
        rows.append(
            Row(
                id="-".join(told),
                source=SITE,
                locator=f"{statistic} of {len(by_session)} sessions",
                system=system,
                toolchain=newest["environment"],
                benchmark=newest["benchmark"],
                metric=metric,
                placement=placement,
                message_size=size,
                nodes=len(per_node),
                ppn=max(per_node.values()),
                conditions=here,
                value=float(f"{middle:.6g}"),
                spread=float(f"{min(spread, middle):.3g}"),
                unit=unit,
                statistic=statistic,
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
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    _, faults = read_rows(partial)
    if faults:
        partial.unlink()
        raise Fault("\n".join(faults))
    partial.replace(path)
