"""A dry run: the job scripts to look at, or the plan that another command asked for."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import reframe.core.runtime as rt

from plumbline.check.record import Record
from plumbline.check.result import CaseResult
from plumbline.core import paths
from plumbline.core.text import pluralize, printable_lines
from plumbline.reference import lookup
from plumbline.session import summary
from plumbline.session.loading import Loading
from plumbline.site import configuration


class DryRun:
    """What a dry run shows.

    :ivar of_scripts: whether the job scripts are wanted, and not a plan.
    :ivar cases: the test cases of the plan. :ivar metrics: those of their figures.
    :ivar placeholders: those of job scripts, each with why it is there -> how many have it.
    """

    def __init__(self) -> None:
        self.of_scripts = configuration.PLAN_FILE not in os.environ
        self.cases: list[dict] = []
        self.metrics: set[str] = set()
        self.placeholders: Counter[str] = Counter()

    def add(self, fields: Record, measured: CaseResult, seconds: float) -> None:
        """Add a test case.

        :arg seconds: its time limit.
        """
        self.cases.append(_case(fields, measured, seconds))
        self.metrics.update(figure.metric for figure, _ in measured.expected)
        if fields.result == "pass":
            self.placeholders.update(
                f"{placeholder}: {why.coded()}"
                for placeholder, why in measured.placeholders.items()
            )

    def close(self, records: list[Record], planned: int, loading: Loading) -> None:
        """Print the summary, and where the job scripts are, or write the plan."""
        would = "rendered" if self.of_scripts else "would run"
        print(printable_lines(summary.table(records, planned, would)))
        if not self.of_scripts:
            self._write(Path(os.environ[configuration.PLAN_FILE]), loading)
            return
        for misfit in loading.misfits:
            if misfit.wanted:
                print(f"plumbline: {printable_lines(str(misfit))}")
        for placeholder, count in self.placeholders.items():
            scripts = pluralize(count, "job script")
            print(f"plumbline: {scripts} with the placeholder {printable_lines(placeholder)}")
        where = Path(rt.runtime().stage_prefix, "SYSTEM", "PARTITION", "ENVIRONMENT", "CHECK")
        print(f"plumbline: nothing was run; job scripts: {where / 'rfm_job.sh'}", flush=True)

    def _write(self, path: Path, loading: Loading) -> None:
        system, tables = rt.runtime().system, lookup.loaded(paths.reference()).tables
        plan = {
            "system": system.name,
            "detected": any(part.extras.get("detect") for part in system.partitions),
            "cases": self.cases,
            "checks": sorted(loading.checks),
            "misfits": [*map(str, loading.misfits)],
            "programs": loading.programs,
            "features": sorted(loading.features),
            "metrics": sorted(self.metrics.union(*tables.foms.values())),
            "undeclared": tables.undeclared(),
            "unloaded": tables.unloaded(),
        }
        path.write_text(json.dumps(plan))


def _case(fields: Record, measured: CaseResult, seconds: float) -> dict:
    """Return a test case of the plan: whether it would run, and what would be asserted."""
    tables = lookup.loaded(paths.reference())
    asserted = []
    rows: dict[str, list[str]] = {}
    expected = measured.expected if fields.result == "pass" else []
    result, reason, code = fields.result, fields.reason, fields.code
    if measured.placeholders and result == "pass":
        # It would be skipped; its figures and their bounds are known nevertheless.
        why = next(iter(measured.placeholders.values()))
        result, reason, code = "skip", str(why), why.code
    for figure, case in expected:
        if figure.metric not in tables.tables.foms.get(case.benchmark, {}):
            # Of a plain check, without a baseline.
            continue
        bounds = tables.bounds(case, figure.metric, figure.size, measured.samples or 0)
        ceiling = tables.ceiling(case, figure.metric, figure.size)
        if bounds:
            asserted.append([bounds.decides, *bounds.others])
            rows.setdefault(bounds.decides, []).append(figure.variable)
        if ceiling:
            rows.setdefault(ceiling.key, []).append(figure.variable)
    return {
        "case": fields.name,
        "tags": fields.tags,
        "runs": result == "pass",
        "result": result,
        "reason": reason,
        "code": code,
        "seconds": seconds,
        "figures": len(expected),
        "asserted": len(asserted),
        "references": sorted({name for ids in asserted for name in ids}),
        "rows": rows,
    }
