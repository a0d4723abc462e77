"""Links: whose theoretical peak caps the figures of every program whose bytes cross them.

Pure: what ``reference/links.yaml`` holds, and which of it a test case crosses.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pydantic

from plumbline.reference.row import Case, Text

_STRICT = pydantic.ConfigDict(extra="forbid", frozen=True)


class Traffic(pydantic.BaseModel):
    """Figures that move their bytes in the same way; see ``links.yaml``."""

    model_config = _STRICT

    metrics: tuple[str, ...]
    placements: tuple[str, ...] = ("*",)
    where: dict[str, str] = {}
    per_node: bool = False


class SeenAs(pydantic.BaseModel):
    """Placement and conditions by which the rows of a link's peak know it."""

    model_config = _STRICT

    placement: str = ""
    conditions: dict[str, str] = {}


class Link(pydantic.BaseModel):
    """A link, the rows that print its peak, and the traffic that crosses it; see ``links.yaml``."""

    model_config = _STRICT

    what: Text
    peaks: tuple[str, ...]
    seen_as: SeenAs = SeenAs()
    placements: tuple[str, ...] = ("*",)
    carries: dict[str, pydantic.PositiveFloat]
    count: str = ""
    systems: tuple[str, ...] = ("*",)
    reason: Text


class Links(pydantic.BaseModel):
    """``links.yaml``."""

    model_config = _STRICT

    traffic: dict[str, Traffic] = {}
    links: dict[str, Link] = {}

    def crossed(self, case: Case, metric: str) -> Iterator[tuple[Link, float]]:
        """The links that a figure of a test case crosses, and how many times the printed peak of
        each it may reach.

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
    """Whether one of the patterns fits a name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
