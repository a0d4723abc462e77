"""Reports of many series: what is read at once, the memory, and the pages of the speed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable

import pytest
from bench import history as bench_history
from bench import report as bench_report
from conftest import ROOT
from plumbline.analysis import trend
from plumbline.history import history
from plumbline.history.history import History
from plumbline.history.series import Selection, Series
from reports import (
    demo_,  # noqa: F401 - a fixture
)


def test_checks_are_read_in_pieces_as_they_are_at_once(demo, monkeypatch):
    def values_of(series: Iterable[Series]) -> list[tuple]:
        found = ((one.key, one.values.tolist(), one.sessions.tolist()) for one in series)
        return sorted(found, key=lambda item: (item[0].system, item[0].check, item[0]))

    select = Selection(system="alder")
    with History(demo) as found:
        whole, checks = values_of(found.series(select)), found.measured(select)
        assert sum(one.series for one in checks) == len(whole)
        assert sum(one.values for one in checks) == sum(len(values) for _, values, _ in whole)
        assert max(one.most for one in checks) == max(len(values) for _, values, _ in whole)
        for values in (1, 700, 10**6):
            monkeypatch.setattr(history, "_AT_ONCE", values)
            read = list(found.by_check(checks, select))
            assert [{(one.key.system, one.key.check) for one in listed} for listed in read] == [
                {(one.system, one.check)} for one in checks
            ]
            assert values_of(itertools.chain(*read)) == whole


_PEAK = """
import sys
from pathlib import Path
from plumbline.history import history
from plumbline.operate.nightly import parts
from plumbline.output import report
from plumbline.history.series import Selection

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

history._AT_ONCE = 5000
with history.History(Path(sys.argv[1])) as found:
    before = peak()
    made = report.write(found, Path(sys.argv[1], "out"), Selection(), latest=1)
    print(made.series, peak() - before)
"""


def test_memory_does_not_grow_with_the_series(tmp_path):
    """Of what a process takes for a report, beyond what it has with the history open."""
    peaks = {}
    for series in (1000, 4000):
        folder, nights = tmp_path / str(series), trend.NIGHTS - 1
        cases = series // bench_report.SIZES * nights
        bench_history.write_year(folder, cases, nights, bench_report.SYSTEMS, bench_report.sizes)
        with History(folder):
            pass  # Its index is made here, and no part of what the report takes.
        content = subprocess.run([sys.executable, "-c", _PEAK, folder], check=True, text=True,
                              capture_output=True).stdout  # fmt: skip
        made, peaks[series] = map(int, content.split())
        assert made == series
    assert peaks[4000] < 1.5 * peaks[1000]


@pytest.mark.parametrize(("bench", "name"), [(bench_history, "history"), (bench_report, "report")])
def test_the_pages_of_the_speed_are_rendered_from_their_figures(bench, name):
    """They hold no figure that the bench did not print."""
    page = ROOT / "docs" / f"{name}-speed.md"
    assert bench.render(json.loads(page.with_suffix(".json").read_text())) == page.read_text()


def test_the_bench_makes_as_many_series_as_it_says(tmp_path):
    written = bench_history.write_year(tmp_path, 4 * 3, 3, bench_report.SYSTEMS, bench_report.sizes)
    with History(tmp_path) as history:
        assert len(history.series()) == 4 * bench_report.SIZES
    assert written == 12
