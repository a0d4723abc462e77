"""What the page that compares two nights, sessions or builds reads: a small script for each session
and build, with the medians of its figures.

Figures are numbers, in the order of the index of the search.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from plumbline.history.rows import SessionRow
from plumbline.output.report import text
from plumbline.output.report.figures import Panel


@dataclass
class Medians:
    """The medians of the figures of a session or build.

    :ivar sessions: of a build, those that used it.
    """

    figures: array = field(default_factory=lambda: array("I"))
    medians: array = field(default_factory=lambda: array("d"))
    counts: array = field(default_factory=lambda: array("I"))
    sessions: set[str] = field(default_factory=set)

    def add(self, figure: int, median: float, count: int = 1) -> None:
        """Add the median of a figure over so many sessions."""
        self.figures.append(figure)
        self.medians.append(median)
        self.counts.append(count)


class ComparedMedians:
    """Collects the medians while the pages of checks are written."""

    def __init__(self) -> None:
        self._sessions: dict[str, Medians] = {}
        self._builds: dict[tuple[str, str], Medians] = {}

    def add(self, number: int, figure: Panel) -> None:
        """Add a figure with its number in the index of the search."""
        sessions, values = figure.by_session
        for session, value in zip(sessions.tolist(), values.tolist(), strict=True):
            self._sessions.setdefault(session, Medians()).add(number, value)
        builds = np.array([figure.builds.get(session, "") for session in sessions.tolist()])
        for build in set(builds.tolist()) - {""}:
            side = self._builds.setdefault((figure.key.system, build), Medians())
            used = builds == build
            side.add(number, float(np.median(values[used])), int(used.sum()))
            side.sessions.update(sessions[used].tolist())

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
            content: Mapping[str, list] = {
                "figures": side.figures.tolist(),
                "medians": [float(f"{value:.6g}") for value in side.medians],
                "counts": side.counts.tolist() if len(names) > 1 else [],
            }
            name = _file(*names)
            written = json.dumps(content, separators=(",", ":"))
            yield f"data/sides/{name}.js", f'window.side("{name}",{written});\n'


def _ends(side: Medians, rows: list[SessionRow]) -> tuple[list[str], int, list[str]]:
    """Return the first and the last session of a build, the number of all, and the span of their
    starts, whose end is excluded, as ``plumbline compare`` reads it."""
    mine = [row for row in rows if row.session in side.sessions]
    span = [mine[0].start, mine[-1].start + np.timedelta64(1, "s")]
    names = [row.session for row in mine[:: len(mine) - 1 or 1]]
    return names, len(mine), np.datetime_as_string(span, unit="s").tolist()


def _file(*names: str) -> str:
    return text.slug(*names)
