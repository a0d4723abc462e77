"""The metrics of a check over message sizes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from plumbline.output.report import text
from plumbline.output.report.charts import short
from plumbline.output.report.figures import CSV_COLUMNS, Panel, csv_rows

CURVE_COLUMNS = ("size", "latest", "usual", "lower", "upper", "ceiling", "worst", "worst_at")
#: Columns of the file of the values of all sizes.
VALUE_COLUMNS = ("size", *CSV_COLUMNS)


@dataclass
class Curve:
    """A metric over message sizes: the latest and the usual value of each size.

    :ivar figures: one for each size, the smallest first.
    """

    figures: list[Panel]

    @property
    def name(self) -> str:
        key = self.figures[0].key
        return " · ".join(filter(None, (key.metric, key.location)))

    @functools.cached_property
    def anchor(self) -> str:
        return f"curve-{self.figures[0].anchor}"

    @property
    def file(self) -> str:
        """Name of the CSV file of the values of all sizes."""
        return f"sizes-{self.figures[0].anchor}"

    def value_rows(self) -> Iterator[tuple]:
        """Yield the rows of the CSV file of the values of all sizes: with a file for each size, a
        large report had tens of thousands of files."""
        for figure in self.figures:
            yield from ((figure.key.size, *row) for row in csv_rows(figure))

    def rows(self):
        """Yield the rows of its CSV file: of several nodes or places, the latest and the usual
        value are medians, and the worst one is beside them."""
        for figure in self.figures:
            name, worst = figure.worst or ("", math.nan)
            cells = (figure.key.size, figure.latest, figure.usual, *figure.bounds, worst, name)
            yield [text.cell(cell) for cell in cells]

    def data(self) -> dict:
        """Return the data for the page's script."""
        columns = list(zip(*(figure.bounds for figure in self.figures), strict=True))
        return {
            "unit": self.figures[0].first.unit,
            "size": [max(figure.key.size, 0.5) for figure in self.figures],
            "label": [text.size(figure.key.size) for figure in self.figures],
            "latest": short(np.array([figure.latest for figure in self.figures])),
            "usual": short(np.array([figure.usual for figure in self.figures])),
            "lower": short(np.array(columns[0])),
            "upper": short(np.array(columns[1])),
        }


def curves(figures: list[Panel]) -> list[Curve]:
    """Return the metrics that are measured over at least four message sizes."""
    found: dict[tuple, list[Panel]] = {}
    for figure in figures:
        key = figure.key
        if key.size >= 0:
            about = (key.partition, key.environment, key.placement, key.conditions, key.metric)
            found.setdefault((*about, key.location), []).append(figure)
    return [
        Curve(sorted(listed, key=lambda figure: figure.key.size))
        for listed in found.values()
        if len(listed) >= 4
    ]
