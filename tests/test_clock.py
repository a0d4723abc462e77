"""What a wrong clock, and daylight saving time, do to the nights."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from histories import fom, line, store
from plumbline.analysis.trend import nightly as nights_of
from plumbline.history.history import History
from plumbline.operate import nightly

FIRST = datetime.datetime(2026, 6, 1, 1)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def a_night(results: Path, began: datetime.datetime, ended: datetime.datetime, level: float) -> str:
    """A nightly session of one case; its name."""
    day = (began - FIRST).days
    name = f"{began:%Y%m%dT%H%M%SZ}-{day & 0xFFFFFF:06x}"
    figure = fom((10.0 + 0.01 * (day % 5)) * level)
    about = {"session": name, "time": f"{ended:%Y-%m-%dT%H:%M:%SZ}"}
    store(results, line(foms=[figure], extras={"run": "nightly"}, **about))
    return name


@pytest.mark.parametrize("wrong", [25, 39])
@pytest.mark.parametrize("at_start", [True, False])
def test_a_session_in_the_future_hides_no_loss(results: Path, wrong: int, at_start: bool):
    """A clock is ahead by ten years, of a whole session or from some time in it on."""
    codes = []
    for day in range(44):
        began = ended = FIRST + datetime.timedelta(days=day)
        if day == wrong:
            ended = ended.replace(year=2036)
            began = ended if at_start else began
        name = a_night(results, began, ended, 1.1 if day >= 40 else 1.0)
        if day >= 40:
            part = nightly.parts.trend("alpha", name)
            codes.append(part.code)
            assert "1 value in the future" in part.message
    assert sorted(codes) == [0, 0, 0, 1] and codes.index(1) <= 1


def test_a_night_whose_clock_was_ahead_is_inconclusive(results: Path):
    for day in range(24):
        began = FIRST + datetime.timedelta(days=day)
        name = a_night(results, began, began.replace(year=2036 if day == 23 else 2026), 1.0)
    part = nightly.parts.trend("alpha", name)
    assert (part.code, part.findings["new"]) == (2, 0)


def test_each_night_counts_though_some_end_before_midnight(results: Path):
    """01:00 in central Europe is 23:00 UTC in summer: a case after an hour ends at midnight."""
    for day in range(10):
        began = FIRST.replace(hour=23) + datetime.timedelta(days=day)
        a_night(results, began, began + datetime.timedelta(minutes=[58, 62][day % 2]), 1.0)
    with History() as history:
        (series,) = history.series()
    assert nights_of(series).days == [f"2026-06-{day:02}" for day in range(1, 11)]
