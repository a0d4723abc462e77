"""What the page that compares two nights, sessions or builds reads: a small script for each session
and build, with the medians of its figures; of a build, with the number of sessions and their range.

Figures are numbers, in the order of the index of the search.
"""

from __future__ import annotations

import json
import statistics
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from plumbline.history.rows import SessionRow
from plumbline.output.report import text
from plumbline.output.report.figures import Panel


@dataclass
class Medians:
    """The medians of the figures of a session or build.

    :ivar counts: of a build, number of sessions that measured each figure; ``lowest`` and
        ``highest``: the ends of their values.
    :ivar sessions: of a build, those that used it.
    """

    figures: array = field(default_factory=lambda: array("I"))
    medians: array = field(default_factory=lambda: array("d"))
    counts: array = field(default_factory=lambda: array("I"))
    lowest: array = field(default_factory=lambda: array("d"))
    highest: array = field(default_factory=lambda: array("d"))
    sessions: set[str] = field(default_factory=set)

    def add(self, figure: int, median: float) -> None:
        """Add the median of a figure."""
        self.figures.append(figure)
        self.medians.append(median)

    def add_build(self, figure: int, measured: Sequence[tuple[str, float]]) -> None:
        """Add a figure of a build: sessions and values."""
        sessions = {session for session, _ in measured}
        values = [value for _, value in measured]
        self.add(figure, statistics.median(values))
        self.counts.append(len(sessions))
        self.lowest.append(min(values))
        self.highest.append(max(values))
        self.sessions |= sessions

    def content(self) -> dict[str, Sequence[float]]:
        """Return what the page reads."""
        found: dict[str, Sequence[float]] = {"figures": self.figures.tolist()}
        found |= {name: _short(getattr(self, name)) for name in ("medians", "lowest", "highest")}
        return found | {"counts": self.counts.tolist()}


class ComparedMedians:
    """Collects the medians while the pages of checks are written."""

    def __init__(self) -> None:
        self._sessions: dict[str, Medians] = {}
        self._builds: dict[tuple[str, str], Medians] = {}

    def add(self, number: int, figure: Panel) -> None:
        """Add a figure with its number in the index of the search."""
        sessions, values = figure.by_session
        by_build: dict[str, list[tuple[str, float]]] = {}
        for session, value in zip(sessions.tolist(), values.tolist(), strict=True):
            self._sessions.setdefault(session, Medians()).add(number, value)
            if build := figure.builds.get(session):
                by_build.setdefault(build, []).append((session, value))
        for build, measured in by_build.items():
            side = self._builds.setdefault((figure.key.system, build), Medians())
            side.add_build(number, measured)

    def index(self, rows: list[SessionRow]) -> dict[str, list]:
        """Return the sides that can be chosen, the newest first: of a session its name, system and
        file; of a build also its first and last session, how many it has, and their span of time.

        :arg rows: oldest first.
        """
        listed = [row for row in reversed(rows) if row.session in self._sessions]
        builds = sorted(self._builds.items(), key=lambda one: max(one[1].sessions), reverse=True)
        return {
            "sessions": [[row.session, row.system, _file(row.session)] for row in listed],
            "builds": [
                [build, system, _file(system, build), *_ends(side, rows)]
                for (system, build), side in builds
            ],
        }

    def scripts(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the content of each side's script."""
        sides = [((session,), side) for session, side in self._sessions.items()]
        for names, side in [*sides, *self._builds.items()]:
            name = _file(*names)
            written = json.dumps(side.content(), separators=(",", ":"))
            yield f"data/sides/{name}.js", f'window.side("{name}",{written});\n'


def _short(values: array) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _ends(side: Medians, rows: list[SessionRow]) -> tuple[list[str], int, list[str]]:
    """Return the first and the last session of a build, the number of all, and the span of their
    starts, whose end is excluded, as ``plumbline compare`` reads it."""
    mine = [row for row in rows if row.session in side.sessions]
    span = [mine[0].start, mine[-1].start + np.timedelta64(1, "s")]
    names = [row.session for row in mine[:: len(mine) - 1 or 1]]
    return names, len(mine), np.datetime_as_string(span, unit="s").tolist()


def _file(*names: str) -> str:
    return text.slug(*names)
