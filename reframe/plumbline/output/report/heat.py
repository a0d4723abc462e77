"""The heat map of a figure: each node on each night, compared with the node's usual value.

A map is an image of one pixel for a node and a night, which needs no script; its palette is alike
in light and dark, since what is usual is transparent.
"""

from __future__ import annotations

import bisect
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plumbline.output.report import text
from plumbline.output.report.figures import Panel
from plumbline.output.report.slow_nodes import Screened, SlowNode, usual_of

#: At most so many nights are shown.
NIGHTS = 90
#: Relative differences at which the colour changes. A difference below the first is usual:
#: `plumbline screen` flags none.
STEPS = (0.02, 0.05, 0.10, 0.20)
#: Ends of a colour-blind-safe scale (vermilion and blue of Okabe and Ito), and of no measurement.
WORSE, BETTER, NONE = (213, 94, 0), (20, 125, 195), (128, 134, 142)
#: Opacity of each step, of which the first has a contrast of 2:1 with what is usual in both themes;
#: of a cell without a measurement.
OPACITY, FAINT = (0.62, 0.75, 0.88, 1.0), 0.4
#: Height of a row in pixels, at least and at most, so that the map has about as many as this.
LEAST, MOST, HEIGHT = 3, 16, 1000
#: Height of a name beside a map, in pixels.
NAME = 14


class Mark(NamedTuple):
    """Nights on which ``plumbline screen`` flagged a node, as a box of the map.

    :ivar here: whether this figure was part of the evidence.
    """

    left: int
    top: int
    width: int
    here: bool


@dataclass(frozen=True)
class HeatMap:
    """Relative differences of nodes x nights from each node's usual value.

    :ivar nights: the first session of each night, oldest first. :ivar sessions: its last.
    :ivar usual: of each node. :ivar values: nodes x nights, NaN if not measured.
    :ivar signed: the differences, of which those below 0 are worse.
    :ivar marks: also of nodes without a page. :ivar flagged: the nodes that have one.
    """

    figure: Panel
    nights: list[str]
    sessions: list[str]
    nodes: list[str]
    usual: np.ndarray
    values: np.ndarray
    signed: np.ndarray
    marks: list[Mark]
    flagged: list[SlowNode]

    @property
    def row(self) -> int:
        """Height of a node's row in pixels."""
        return max(LEAST, min(MOST, HEIGHT // len(self.nodes)))

    @property
    def dates(self) -> list[tuple[str, float]]:
        """The first, the last and some nights between, each with its place in per cent."""
        count = len(self.nights)
        places = np.unique(np.linspace(0, count - 1, min(count, 5)).astype(int)).tolist()
        return [(text.night(self.nights[at]), 100 * (at + 0.5) / count) for at in places]

    @property
    def names(self) -> list[tuple[str, float]]:
        """As many names of nodes as fit beside the map, each with its place in pixels."""
        places = range(0, len(self.nodes), math.ceil(NAME / self.row))
        return [(self.nodes[at], self.row * (at + 0.5)) for at in places]

    @property
    def flags(self) -> list[tuple[SlowNode, float]]:
        """The flagged nodes, each with the place of its name in pixels, which do not overlap, nor
        are below the map."""
        places: list[float] = []
        for one in self.flagged:
            at = self.row * (self.nodes.index(one.node) + 0.5)
            places.append(max(at, places[-1] + NAME) if places else at)
        lowest = self.row * len(self.nodes) - NAME / 2
        for number, at in enumerate(reversed(places)):
            places[-1 - number] = min(at, lowest - number * NAME)
        return [*zip(self.flagged, places, strict=True)]

    def image(self) -> bytes:
        """Return the map as a PNG image of one pixel for each cell."""
        size = np.searchsorted(STEPS, np.abs(np.nan_to_num(self.signed)), side="right")
        index = np.where(self.signed < 0, size, len(STEPS) + size)
        index = np.where(size == 0, 0, index)
        index[np.isnan(self.signed)] = 2 * len(STEPS) + 1
        colours = [(0, 0, 0), *[WORSE] * len(STEPS), *[BETTER] * len(STEPS), NONE]
        alpha = (0.0, *OPACITY, *OPACITY, FAINT)
        return png(index.astype(np.uint8), colours, [round(255 * one) for one in alpha])

    def data(self, pages: Mapping[str, str]) -> dict:
        """Return what the page's script shows of a cell.

        :arg pages: of sessions. Differences from the usual value are in thousandths, ``None`` if
            not measured. Where that is 0, they are the values.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = 1000 * (self.values / self.usual[:, None] - 1)
        shares = np.where(self.usual[:, None] == 0, self.values, shares)
        return {
            "nights": [text.night(night) for night in self.nights],
            "pages": [pages.get(session, "") for session in self.sessions],
            "nodes": self.nodes,
            "usual": [float(f"{one:.6g}") for one in self.usual.tolist()],
            "share": [_numbers(row, bool(usual))
                      for row, usual in zip(shares.tolist(), self.usual, strict=True)],
            "unit": self.figure.first.unit,
            "flagged": {one.node: one.path for one in self.flagged},
        }  # fmt: skip


def _numbers(values: list[float], whole: bool) -> list[float | None]:
    """Return numbers for the page's script, ``None`` where there is none."""
    return [
        (round(v) if whole else float(f"{v:.6g}")) if math.isfinite(v) else None for v in values
    ]


def of(figure: Panel, screened: Screened) -> HeatMap | None:
    """Return the map of a figure, ``None`` if it is not of at least two nodes, by themselves or in
    pairs.

    :arg screened: what is flagged of the figure's system.
    """
    found: dict[str, dict[str, float]] = {}
    levels: dict[str, float] = {}
    newest: dict[str, str] = {}
    flagged = {one.node: one for one in screened.nodes}
    oldest = min(_last({figure.night(one) for one in figure.history[0].tolist()}))
    for member in figure.of_nodes or ([] if figure.several else figure.members):
        node = member.key.node
        begin = int(np.searchsorted(member.sessions, oldest))
        sessions, values = member.sessions[begin:].tolist(), member.values[begin:].tolist()
        names = [node] * len(sessions) if node else member.nodes[begin:].tolist()
        for session, name, value in zip(sessions, names, values, strict=True):
            if name and "," not in name:
                night = figure.night(session)
                found.setdefault(name, {})[night] = value
                newest[night] = session
        if node:
            usual = usual_of(figure, member, flagged.get(node))
            levels[node] = float(np.median(usual)) if len(usual) else math.nan
    if len(found) < 2:
        return None
    nodes, nights = sorted(found), _last(newest)
    table = np.array([[*map(found[node].get, nights)] for node in nodes], float)
    return _map(figure, nights, [newest[night] for night in nights], nodes, table, levels,
                screened)  # fmt: skip


def _last(nights: Iterable[str]) -> list[str]:
    return sorted(nights)[-NIGHTS:]


def _map(
    figure: Panel,
    nights: list[str],
    sessions: list[str],
    nodes: list[str],
    values: np.ndarray,
    levels: Mapping[str, float],
    screened: Screened,
) -> HeatMap:
    own = [float(np.nanmedian(row)) if np.isfinite(row).any() else math.nan for row in values]
    usual = np.array([levels.get(node, math.nan) for node in nodes])
    usual = np.where(np.isfinite(usual), usual, own)
    usual[np.isnan(usual)] = np.nanmedian(usual)
    with np.errstate(invalid="ignore", divide="ignore"):
        signed = (values / usual[:, None] - 1) * (-1 if figure.first.better == "lower" else 1)
    signed = np.where(values == usual[:, None], 0, signed)
    place = {node: at for at, node in enumerate(nodes)}
    measured = (one for one in screened.nodes if one.node in place)
    flagged = sorted(measured, key=lambda one: place[one.node])
    flags = [(one.node, flag) for one in flagged for flag in one.flags]
    flags += [(node, flag) for node in nodes for flag in screened.framed.get(node, ())]
    marks = []
    for node, flag in flags:
        left = bisect.bisect_left(nights, flag.since)
        right = len(nights) if flag.until is None else bisect.bisect_right(nights, flag.until)
        if right > left:
            here = figure.key.metric in " ".join(flag.evidence).split()
            marks.append(Mark(left, place[node], right - left, here))
    return HeatMap(figure, nights, sessions, nodes, usual, values, signed, marks, flagged)


def png(index: np.ndarray, colours: list[tuple[int, int, int]], alpha: list[int]) -> bytes:
    """Return a PNG image with a palette (ISO/IEC 15948).

    :arg index: rows x columns of places in the palette. :arg alpha: of its colours, 0 to 255.
    """

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    height, width = index.shape
    # Each row is preceded by its filter, none.
    rows = np.hstack([np.zeros((height, 1), np.uint8), index]).tobytes()
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", bytes(part for colour in colours for part in colour)),
            chunk(b"tRNS", bytes(alpha)),
            chunk(b"IDAT", zlib.compress(rows, 9)),
            chunk(b"IEND", b""),
        ]
    )
