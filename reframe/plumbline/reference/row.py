"""A row of a reference table, and the test case that rows are matched with.

Pure: reads no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pydantic

from plumbline.core import units
from plumbline.parse import Figure
from plumbline.placement import placement

Statistic = Literal["best", "mean", "median", "min", "max", "std", "p99", "single", "unstated"]
Text = Annotated[str, pydantic.Field(min_length=1)]
Kind = Literal["measured", "peak", "target", "derived"]

#: Source of a site's own rows.
SITE = "site"
#: Id in records of the reference that a check declares itself, which is no row of a table.
OF_CHECK = "check"
#: What the benchmark of a plain ReFrame check begins with; its name with parameters follows.
PLAIN = "check:"
#: What the condition begins with that a variable of ``-S`` is; its name follows.
SETVAR = "setvar."


@dataclass(frozen=True)
class Case:
    """The conditions under which a figure of merit was measured.

    :ivar conditions: key-value conditions; all conditions of a row must be met.
    """

    system: str
    partition: str
    environment: str
    benchmark: str
    placement: str
    nodes: int
    ppn: int
    conditions: dict[str, str] = field(default_factory=dict)


class Strict(pydantic.BaseModel):
    """An entry of a table or register, which has no other keys than its fields."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


def _empty_is_unstated(cell: object) -> object:
    return None if cell == "" else cell


def _conditions(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    pairs = {}
    for part in filter(None, (p.strip() for p in cell.split(";"))):
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            raise ValueError(f"{part!r} is not key=value")
        if key in pairs:
            raise ValueError(f"{key!r} is repeated")
        pairs[key] = value
    return pairs


Unstated = pydantic.BeforeValidator(_empty_is_unstated)
Count = Annotated[int | None, pydantic.Field(ge=0), Unstated]
Number = Annotated[float, pydantic.Field(allow_inf_nan=False)]


class Row(Strict, str_strip_whitespace=True):
    """One printed number with its source and conditions: a line of a table.

    An empty cell is unstated and matches any case. ``value``, ``spread`` and ``unit`` are as
    printed; ``value_used`` and ``unit_used`` correct a misprint. A row of a site's baseline has its
    sessions, the date of the newest one, and who accepted it and when.
    """

    id: Text
    source: Text
    locator: Text
    system: Text
    toolchain: str = ""
    benchmark: Text
    metric: Text
    placement: str = ""
    message_size: Count = None
    nodes: Count = None
    ppn: Count = None
    conditions: Annotated[dict[str, str], pydantic.BeforeValidator(_conditions)] = {}
    value: Number
    spread: Annotated[Number | None, pydantic.Field(ge=0), Unstated] = None
    unit: str
    value_used: Annotated[Number | None, Unstated] = None
    unit_used: str = ""
    statistic: Statistic
    kind: Kind
    note: str = ""
    sessions: str = ""
    date: str = ""
    accepted_by: str = ""
    accepted_on: str = ""

    @pydantic.field_validator("placement")
    @classmethod
    def _known_placement(cls, name: str) -> str:
        if name and not placement.exists(name):
            raise ValueError(f"no such placement; {placement.suggestion(name)}")
        return name

    @property
    def plain(self) -> bool:
        """Whether it is of a plain ReFrame check, whose figures no register has."""
        return self.benchmark.startswith(PLAIN)

    @property
    def variable(self) -> str:
        return Figure(self.metric, self.message_size).variable

    def used(self, unit: str) -> tuple[float, float]:
        """Return the corrected value and the spread in the given unit.

        :raises units.UnitError: if the units have different dimensions.
        """
        value = self.value if self.value_used is None else self.value_used
        factor = units.conversion(self.unit_used or self.unit, unit)
        return value * factor, (self.spread or 0.0) * factor


def key_of(row: Row) -> tuple[object, ...]:
    """Return what a row describes; rows of one source with the same key are duplicates."""
    conditions = tuple(sorted(row.conditions.items()))
    cells = (row.system, row.toolchain, row.benchmark, row.metric, row.placement)
    return (*cells, row.message_size, row.nodes, row.ppn, conditions, row.statistic, row.kind)
