"""One that is slow: what screening says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Named:
    """One that is slow.

    :ivar night: on which it was named, from what was known then.
    :ivar kind: ``node``, ``gpu``, ``pair``, ``link`` (between two switches) or ``switch``.
    :ivar name: the node; node and GPU; the two nodes; the two switches; the switch.
    :ivar size: relative loss against what it would be if it were well.
    :ivar confidence: 1 less the number of such names that chance gives in the fleet and night.
    :ivar since: first slow night, as far as all nights there are tell it.
    :ivar until: last slow night; ``None`` while it lasts.
    :ivar evidence: what it was slow in.
    :ivar note: what could not be told.
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

    @property
    def drained(self) -> bool:
        """Whether its node is to be drained: slow still, and the node or one of its GPUs. Of a
        pair, link or switch nobody knows which node it would be."""
        return self.until is None and self.kind in ("node", "gpu")

    def fields(self) -> dict:
        """As an object of JSON."""
        if self.kind == "gpu":
            who = {"node": self.name[0], "gpu": self.name[1]}
        else:
            who = {self.kind: self.name[0] if len(self.name) == 1 else [*self.name]}
        return {
            "night": _number(self.night),
            "kind": self.kind,
            **who,
            "size": round(self.size, 4),
            "confidence": round(self.confidence, 6),
            "since": _number(self.since),
            "until": None if self.until is None else _number(self.until),
            "drain": self.drained,
            "evidence": self.evidence,
            "note": self.note,
        }


def _number(text: str) -> int | str:
    """A night as JSON has it: a number where the file had one."""
    return int(text) if re.fullmatch(r"0|[1-9]\d{0,14}", text) else text
