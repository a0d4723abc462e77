"""What happened in a series of nights, as the walk over them notes it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Episode:
    """Something that happened; nights are indices into the measured ones.

    :ivar kind: ``step``, ``pulse`` (a blip), ``ramp`` (a drift) or ``suspect`` (a night far off,
        in a series with outliers).
    :ivar detected: night of the first report.
    :ivar end: last night of a blip, or the last that a drift was seen on.
    :ivar first: the kind first reported, where it was revised, and ``revised`` the night of that.
    :ivar confirmed: False for a night far off that no later night and no retest bears out yet.
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
    #: What held before: first night of that level, and the level.
    regime: int = 0
    before: float = 0.0
    #: Night that dated it: a report may have stood before, unconfirmed.
    sure: int = field(init=False)

    def __post_init__(self) -> None:
        self.sure = self.detected
