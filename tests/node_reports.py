"""Reports of figures that many nodes have: their cases, panels, changes and heat maps."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from plumbline.history.history import History
from plumbline.output.report import by_node, figures
from reports import TRIAD, one


def pixels(path: Path) -> np.ndarray:
    """The places in the palette of a heat map's image."""
    content = path.read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    at = content.index(b"IDAT")
    (length,) = struct.unpack(">I", content[at - 4 : at])
    rows = np.frombuffer(zlib.decompress(content[at + 4 : at + 4 + length]), np.uint8)
    return rows.reshape(height, width + 1)[:, 1:]


@pytest.fixture(name="triad")
def triad_(pages) -> str:
    """The anchor of a figure of many nodes."""
    return one(pages, "data/alder-babelstream-cpu*/triad-*.png").stem


def measured(value: float, **figure) -> dict:
    """A test case that measured this."""
    return {"figures": [TRIAD | {"value": value} | figure]}


def of_nodes(values: dict[str, float], **figure) -> list[dict]:
    """The cases of nodes of which each was measured by itself."""
    return [
        {"check": f"stream %.nid={node}", "nodes": [node]} | measured(value, **figure)
        for node, value in values.items()
    ]


def shares(text: str) -> list[float]:
    """The losses in a text, in per cent."""
    return [float(size) for size in re.findall("\u2212([\\d.]+)\u202f%", text)]


def figures_of(folder: Path) -> list[figures.Panel]:
    """The figures of the one check of a history."""
    with History(folder) as history:
        nights = by_node.nights(history.sessions())
        return figures.grouped(history.series(), {}, nights)


def of_pairs(values: dict[str, float], **figure) -> list[dict]:
    """The case of pairs of nodes such as ``n1:n2``."""
    usual = {"metric": "bandwidth", "unit": "MB/s", "better": "higher", "reference": 200.0}
    nodes = sorted({node for pair in values for node in pair.split(":")})
    of = [usual | {"value": value, "location": pair} | figure for pair, value in values.items()]
    return [{"check": "pairs", "nodes": nodes, "figures": of}]
