"""Links, whose theoretical peaks cap the figures of all programs whose bytes cross them.

Pure: the model of ``reference/links.yaml``, and which links a test case crosses.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pydantic

from plumbline.reference.row import Case, Strict, Text


class Traffic(Strict):
    """Figures that move their bytes the same way; see ``links.yaml``."""

    metrics: tuple[str, ...]
    placements: tuple[str, ...] = ("*",)
    where: dict[str, str] = {}
    per_node: bool = False


class LinkRows(Strict):
    """Placement, nodes and conditions of a link in the rows of its peak; those of the case by
    default."""

    placement: str = ""
    nodes: pydantic.PositiveInt | None = None
    conditions: dict[str, str] = {}


class Link(Strict):
    """A link, the rows of its peak, and the traffic that crosses it; see ``links.yaml``."""

    what: Text
    peaks: tuple[str, ...]
    seen_as: LinkRows = LinkRows()
    placements: tuple[str, ...] = ("*",)
    carries: dict[str, pydantic.PositiveFloat]
    count: str = ""
    systems: tuple[str, ...] = ("*",)
    reason: Text


class Links(Strict):
    """``links.yaml``."""

    traffic: dict[str, Traffic] = {}
    links: dict[str, Link] = {}

    def crossed(self, case: Case, metric: str) -> Iterator[tuple[Link, float]]:
        """Yield the links that a figure of a test case crosses, each with the multiple of its
        printed peak that the figure may reach.

        :arg metric: as ``benchmark/metric``.
        """
        for link in self.links.values():
            for name, times in link.carries.items():
                traffic = self.traffic[name]
                if (
                    metric in traffic.metrics
                    and applies(link.systems, case.system)
                    and applies(link.placements, case.placement)
                    and applies(traffic.placements, case.placement)
                    and traffic.where.items() <= case.conditions.items()
                ):
                    yield link, times * (case.nodes if traffic.per_node else 1)


def applies(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether a pattern matches a name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
