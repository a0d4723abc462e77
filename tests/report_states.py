"""What tests of the report share: states of systems, inventories, baselines and changes."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import re
from pathlib import Path

import pytest
from conftest import COLUMNS
from plumbline.analysis.trend import series_changes
from plumbline.history.history import History
from plumbline.history.series import ALL, Selection, Series
from plumbline.output.report import status
from plumbline.site import inventory
from reports import NOW, SLOW


def count(section: str) -> int:
    """The number in a section's heading."""
    return int(re.search(r"\d+", section)[0])


def states(
    folder: Path, select: Selection = ALL, source: Path | None = None, now: datetime.datetime = NOW
) -> list[status.SystemState]:
    """The states of the systems of a history, of which a part may be selected, by name."""
    with pytest.MonkeyPatch.context() as patch, History(source or folder) as history:
        patch.setenv("PLUMBLINE_SITE", str(folder))
        found = status.of_systems(
            history, history.sessions(), select, now, datetime.timedelta(hours=48),
            lambda system: inventory.read(system) or inventory.Inventory(),
        )  # fmt: skip
    return sorted(found, key=lambda one: one.system)


def state(folder: Path, select: Selection = ALL, source: Path | None = None) -> status.SystemState:
    (found,) = states(folder, select, source)
    return found


PASSES = {"check": "stream %.repeat_no=0"}
FAILS = {"check": "stream %.repeat_no=1", "figures": [SLOW]}


def write_inventory(folder: Path, *checks: str) -> None:
    path = folder / "systems" / "inventory" / "alder.json"
    path.parent.mkdir(parents=True)
    cases = {f"{check} @alder:cpu+gnu-mpich": {} for check in checks}
    path.write_text(inventory.Inventory(cases=cases).text())


def a_baseline(folder: Path, *rows: dict) -> Path:
    """Writes a site's own table of references."""
    path = folder / "reference" / "alder.csv"
    path.parent.mkdir()
    usual = {"source": "site", "locator": "baseline", "system": "alder", "statistic": "median",
             "benchmark": "babelstream", "metric": "triad", "placement": "all-cores",
             "value": "290", "unit": "GB/s", "kind": "measured"}  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(usual | row for row in rows)
    return path


def of_metric(metric: str, series: Series) -> Series:
    return dataclasses.replace(series, key=dataclasses.replace(series.key, metric=metric))


def a_change(series: Series, start: int, **fields) -> series_changes.SeriesChange:
    """A confirmed loss of a series that lasts."""
    began = series.times[start]
    known = {"kind": "regression", "size": -0.05, "worse": True, "active": True, "confirmed": True,
             "before": "a", "after": "b", "until": None}  # fmt: skip
    places = {"start": start, "detected": start, "end": None}
    return series_changes.SeriesChange(
        series="", key=series.key, confidence=0.99, began=began, found=began,
        **places | known | fields,
    )  # fmt: skip
