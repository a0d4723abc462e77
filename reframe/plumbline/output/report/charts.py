"""The data of the charts of a figure of merit, for the page's script."""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable

import numpy as np

from plumbline.analysis.screen import Flag
from plumbline.analysis.trend.series_changes import SeriesChange
from plumbline.history.series import Series
from plumbline.output.report.by_node import WORST_FIRST
from plumbline.output.report.figures import Panel, badness_of

#: At most so many members of a chart have their own line.
LINES = 5
#: Arrays of a series with limits.
BOUNDS = ("lower", "upper", "ceiling")
#: Verdict -> its letter in the page's data.
LETTERS = {"pass": "p", "fail": "f", "waived": "w", "above-ceiling": "a", "not-asserted": "n"}


def data(figure: Panel, axes: dict[str, int], target: float | None) -> dict:
    """Return the data for the page's script.

    :arg axes: index of each axis (sessions, times, builds and nodes as JSON), which figures of a
        page share; a new axis is added.
    :arg target: value of the reference, in the figure's unit.
    """
    sessions, times, values = figure.history
    found = _data_of_several(figure) if figure.several else _data_of_one(figure)
    axis = {
        "session": [str(session) for session in sessions],
        "time": (times.astype("datetime64[s]").astype(int) // 60).tolist(),
        "build": found.pop("build"),
        "hosts": found.pop("hosts"),
    }
    return found | {
        "id": figure.anchor,
        "name": figure.name,
        "unit": figure.first.unit,
        "better": figure.first.better,
        "axis": axes.setdefault(json.dumps(axis), len(axes)),
        "value": short(values),
        "target": target,
        "changes": [_change_data(change) for change in figure.changes],
        "nodes": figure.over_nodes,
    }


def of_node(
    figure: Panel,
    member: Series,
    flags: Iterable[Flag],
    axes: dict[str, int],
    target: float | None,
) -> dict:
    """Return the data of one node of a figure: its history beside the median over its peers, with
    the nights on which it was flagged in the stead of changes.

    :arg axes: and ``target``: as for :func:`data`.
    """
    nights = [figure.night(name) for name in member.sessions.tolist()]
    ends = dict.fromkeys(
        (figure.night(flag.since), flag.until and figure.night(flag.until)) for flag in flags
    )
    marks = (_flag_data(nights, member.times, *one) for one in ends)
    found = data(Panel([member], night_of=figure.night_of), axes, target)
    peers = short(figure.peers.medians(member)) if len(figure.of_nodes) > 1 else None
    return found | {"changes": [mark for mark in marks if mark], "peers": peers}


def _flag_data(
    nights: list[str], times: np.ndarray, since: str, until: str | None
) -> dict[str, object] | None:
    """Return a flag as a change, ``None`` if nothing was measured since it began."""
    first = bisect.bisect_left(nights, since)
    if first == len(nights):
        return None
    ended = None if until is None else times[max(first, bisect.bisect_right(nights, until) - 1)]
    return {"kind": "flagged", "time": _minutes(times[first]), "until": _minutes(ended)}


def _data_of_one(figure: Panel) -> dict:
    member = figure.first
    return {
        "verdict": "".join(LETTERS.get(str(verdict), "?") for verdict in member.verdicts),
        **{name: _number_runs(getattr(member, name)) for name in BOUNDS},
        "reference": runs(member.references.tolist()),
        "build": runs(member.builds.tolist()),
        "hosts": runs(member.nodes.tolist()),
    }


def _data_of_several(figure: Panel) -> dict:
    """Return the range over the members, and lines for those that are red or changed."""
    _, _, _, by_session, which = figure.over_members
    changed = {change.key for change in figure.changes if change.worse}
    bad = ("above-ceiling", "fail", "waived")
    red = [member for member in figure.members if member.verdicts[-1] in bad]
    odd = [m for m in figure.members if m.key in changed and m.verdicts[-1] not in bad]
    index = {str(name): place for place, name in enumerate(figure.history[0])}
    lines = []
    for member in (red + odd)[:LINES]:
        line: list[float | None] = [None] * len(by_session)
        for session, value in zip(member.sessions, short(member.values), strict=True):
            line[index[figure.first_of(str(session))]] = value
        lines.append({"name": figure.place_of(member), "value": line})
    verdicts = figure.of_members("verdicts")
    letters = np.full(len(by_session), LETTERS["pass"])
    # The last one written is the worst.
    for name in reversed(WORST_FIRST):
        letters[which[verdicts == name]] = LETTERS[name]
    builds = [figure.builds[session] for session in figure.history[0].tolist()]
    return {
        "worst": runs(_worst_by_session(figure)),
        "verdict": "".join(letters),
        "low": short(np.array([part.min() for part in by_session])),
        "high": short(np.array([part.max() for part in by_session])),
        "count": [len(part) for part in by_session],
        "lines": lines,
        "hosts": [],
        **{name: _number_runs(_common(figure, name)) for name in BOUNDS},
        "build": runs(builds),
    }


def _worst_by_session(figure: Panel) -> list[str]:
    """Return the name of the worst member of each session."""
    _, _, medians, by_session, which = figure.over_members
    values = figure.of_members("values")
    badness = badness_of(values, medians[which], figure.first.better)
    owners = np.repeat(np.arange(len(figure.members)), [len(m.values) for m in figure.members])
    worst = np.zeros(len(by_session), int)
    # The last one written is the worst.
    order = np.argsort(badness, kind="stable")
    worst[which[order]] = owners[order]
    return [figure.place_of(figure.members[owner]) for owner in worst.tolist()]


def _common(figure: Panel, name: str) -> np.ndarray:
    """Return a bound of each session if all members share it, else NaN."""
    _, _, _, by_session, which = figure.over_members
    low, high = np.full(len(by_session), np.inf), np.full(len(by_session), -np.inf)
    # NaN stays NaN: if only some members have a bound, it is not common.
    with np.errstate(invalid="ignore"):
        np.minimum.at(low, which, figure.of_members(name))
        np.maximum.at(high, which, figure.of_members(name))
    low[low != high] = np.nan
    return low


def _change_data(change: SeriesChange) -> dict:
    return {
        "kind": change.badge,
        "worse": change.worse,
        "time": _minutes(change.began),
        "until": _minutes(change.until) if change.kind == "transient" else None,
        "size": round(change.size, 5),
        "node": change.key.node,
    }


def _minutes(time: np.datetime64 | None) -> int | None:
    return None if time is None else int(time.astype("datetime64[m]").astype(int))


def short(values: np.ndarray) -> list[float | None]:
    """Return values with six significant digits, ``None`` if not finite."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def runs(values: list) -> list[list]:
    """Return ``[index, value]`` of each value that differs from the one before."""
    return [[index, v] for index, v in enumerate(values) if index == 0 or v != values[index - 1]]


def _number_runs(values: np.ndarray) -> list[list]:
    """Return :func:`runs` of numbers with six significant digits."""
    bits = values.view(np.int64)
    starts = [0, *(np.flatnonzero(bits[1:] != bits[:-1]) + 1).tolist()]
    return [[starts[place], value] for place, value in runs(short(values[starts]))]
