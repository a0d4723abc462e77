"""What screening flags: a slow node, GPU, pair of nodes, link or switch, or a node whose network
interfaces are set in another way than those of its peers."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from plumbline.reference import waivers
from plumbline.reference.waivers import Subject, Waiver


@dataclass
class Flag:
    """One slow unit.

    :ivar night: on which it was flagged, from what was known then.
    :ivar kind: ``node``, ``gpu``, ``pair``, ``link`` (between two switches) or ``switch``; or
        ``setting`` of a node.
    :ivar name: the node; node and GPU; the two nodes; the two switches; the switch.
    :ivar size: loss relative to its healthy value: the median of its slow nights, or what each of
        the last ones lost, if that is more; 0 of a setting.
    :ivar confidence: 1 less the number of such flags by chance in the fleet and night.
    :ivar since: first slow night, from all nights.
    :ivar until: last slow night; ``None`` while it lasts.
    :ivar evidence: the figures in which it was slow, or the settings that differ.
    :ivar note: what is uncertain.
    :ivar systems: those in which it was slow: nodes of several may have one name.
    :ivar waiver: that covers it.
    """

    night: str
    kind: str
    name: tuple[str, ...]
    size: float
    confidence: float
    since: str
    until: str | None = None
    evidence: list[str] = field(default_factory=list)
    note: str = ""
    systems: set[str] = field(default_factory=set)
    waiver: Waiver | None = None

    @property
    def label(self) -> str:
        """Its name as one word: ``n007``, ``n007:gpu1``, ``n007:n008``."""
        return ":".join(self.name)

    @property
    def loss(self) -> str:
        """The loss for a person; ``-`` of a setting."""
        return "-" if self.kind == "setting" else f"{self.size:.1%}"

    @property
    def drained(self) -> bool:
        """Whether its node is to be drained: a node or GPU that is still slow. For a pair, link or
        switch it is not known which node that would be."""
        return self.until is None and self.kind in ("node", "gpu")

    def subject(self, system: str) -> Subject:
        """Return it as waivers identify it."""
        return Subject(system, "", "", "", nodes=(self.label,), loss=self.size)

    def waive(self, known: Sequence[Waiver], day: datetime.date | None = None) -> None:
        """Set the waiver that covers it on a day, by default today, in each of its systems. A
        setting has no loss that could become worse, so that none covers it."""
        if self.kind != "setting":
            covering = [waivers.covering(known, self.subject(system), "slow", day)
                        for system in sorted(self.systems)]  # fmt: skip
            self.waiver = covering[0] if covering and all(covering) else None

    def fields(self) -> dict[str, object]:
        """Return it as an object of JSON."""
        name: dict[str, object] = {self.kind: [*self.name]}
        if self.kind == "gpu":
            name = {"node": self.name[0], "gpu": self.name[1]}
        elif len(self.name) == 1:
            name = {"node" if self.kind == "setting" else self.kind: self.name[0]}
        return {
            "night": _number(self.night),
            "kind": self.kind,
            "name": self.label,
            **name,
            "size": round(self.size, 4),
            "confidence": round(self.confidence, 6),
            "since": _number(self.since),
            "until": None if self.until is None else _number(self.until),
            "drain": self.drained,
            "evidence": self.evidence,
            "note": self.note,
            "waiver": self.waiver.id if self.waiver else "",
        }


def _number(text: str) -> int | str:
    """Return a night for JSON: a number if the file had one."""
    return int(text) if re.fullmatch(r"0|[1-9]\d{0,14}", text) else text
