"""The benchmark of the history: what it writes is as Plumbline writes it."""

from __future__ import annotations

import json
from pathlib import Path

from bench import history as bench_history
from plumbline.check import record
from plumbline.history.history import History
from records import valid


def test_the_bench_writes_lines_as_plumbline_does(tmp_path: Path):
    """A small year of it: each record keeps to the schema, and the index has every figure."""
    written = bench_history.write_year(tmp_path, 400, nights=5, systems=2)
    assert written == 400
    with History(tmp_path) as found:
        records = list(found.records())
        series = found.series()
        assert len(found.cases()) == 400
        assert found.faults == found.notes == []
    assert [valid(json.loads(record.dumps(fields))) for fields in records[::40]]
    figures = [fom for fields in records for fom in fields.foms]
    assert sum(len(s.values) for s in series) == len(figures) == 5 * 2 * 4 * (6 * 1 + 3 * 4 + 12)
    assert sorted(v for s in series for v in s.values) == sorted(fom.value for fom in figures)
    assert {len(s.values) for s in series} == {5}
