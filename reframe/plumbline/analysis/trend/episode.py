"""What happened in a series of nights."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Episode:
    """Something that happened; nights are indices into the measured ones.

    :ivar kind: ``step``, ``pulse`` (a transient), ``ramp`` (a drift) or ``suspect`` (a night far
        off, in a series with outliers).
    :ivar detected: night of the first report.
    :ivar end: last night of a transient, or the last on which a drift went on.
    :ivar first: the kind first reported, if it was revised; ``revised``: the night of that.
    :ivar confirmed: whether a retest or a later night agrees.
    :ivar regime: first night of the level before. :ivar before: that level.
    :ivar dated: night whose data dated it; the first report may be earlier, unconfirmed.
    """

    kind: str
    start: int
    detected: int
    size: float
    evidence: float
    end: int | None = None
    first: str = ""
    revised: int | None = None
    confirmed: bool = True
    regime: int = 0
    before: float = 0.0
    dated: int = field(init=False)

    def __post_init__(self) -> None:
        self.dated = self.detected

    @property
    def last(self) -> int:
        """The last night of a transient or a drift; 0 of what lasts."""
        return self.end or 0
