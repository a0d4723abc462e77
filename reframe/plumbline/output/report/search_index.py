"""The index that the report's search page reads: systems, checks, figures, and nodes."""

from __future__ import annotations

import json

from plumbline.output.report import text
from plumbline.output.report.figures import LATEST, Panel


class SearchIndex:
    """Collects what can be found. Names that repeat are numbers, since a site has tens of thousands
    of figures, and each of its nodes is in many checks."""

    def __init__(self) -> None:
        self._systems: dict[str, tuple[int, str]] = {}
        self._checks: list[tuple[int, str, str]] = []
        self._places: dict[str, int] = {}
        self._figures: list[tuple[int, str, int, str, int, int]] = []
        self._units: dict[str, int] = {}
        self._nodes: dict[str, list[int]] = {}
        self._pages: dict[str, list[tuple[int, str]]] = {}

    def add_system(self, name: str, path: str) -> int:
        """Add a system with its page, and return its number."""
        return self._systems.setdefault(name, (len(self._systems), path))[0]

    def add_check(
        self, system: int, name: str, path: str, figures: list[Panel], nodes: set[str]
    ) -> None:
        """Add a check with its page and its figures.

        :arg nodes: those whose test cases did not measure; the others are found in the figures.
        """
        check = len(self._checks)
        self._checks.append((system, text.clean(text.check(name)), path))
        for figure in figures:
            place = text.clean(f"{text.where(figure.key)} {figure.key.placement}")
            number = self._places.setdefault(place, len(self._places))
            unit = self._units.setdefault(text.clean(figure.first.unit), len(self._units))
            better = {"higher": 1, "lower": -1}.get(figure.first.better, 0)
            name = text.clean(figure.name)
            self._figures.append((check, name, number, figure.anchor, unit, better))
            nodes = nodes.union(*map(_nodes_of, figure.members))
        for node in nodes:
            self._nodes.setdefault(text.clean(node), []).append(check)

    def add_node(self, system: int, name: str, path: str) -> None:
        """Add the page of a node of a system, as :meth:`add_system` numbers it."""
        self._pages.setdefault(text.clean(name), []).append((system, path))

    @property
    def figures(self) -> int:
        """Number of figures, and of the next one."""
        return len(self._figures)

    def script(self) -> str:
        """Return the index as a script, since a page on a disk may read no other file."""
        content = {
            "systems": [(text.clean(name), path) for name, (_, path) in self._systems.items()],
            "checks": self._checks,
            "places": [*self._places],
            "units": [*self._units],
            "figures": self._figures,
            "nodes": [
                (name, self._nodes.get(name, []), self._pages.get(name, []))
                for name in sorted({*self._nodes, *self._pages})
            ],
        }
        return f"window.searchIndex = {json.dumps(content, separators=(',', ':'))};\n"


def _nodes_of(series) -> set[str]:
    """Return the nodes of the last sessions of a series."""
    names = {*series.nodes[-LATEST:].tolist(), series.key.node}
    return {node for name in names for node in name.split(",") if node}
