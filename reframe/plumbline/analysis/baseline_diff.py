"""What a new baseline would change of a site's references, and writing it."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path

from plumbline.analysis.baseline import Proposal
from plumbline.core import formats
from plumbline.core.errors import Fault
from plumbline.reference.lookup import Bounds, References, told
from plumbline.reference.row import Row
from plumbline.reference.tables import Tables, key_of, read_rows

#: Kinds of a change, in the order that they are told in; somebody must accept the first two.
LOOSENED, GONE = TO_ACCEPT = ("loosened", "gone")
TIGHTENED, NEW, MOVED, SAME = ("tightened", "new", "moved", "unchanged")
_ORDER = (*TO_ACCEPT, TIGHTENED, NEW, MOVED, SAME)

#: Lines of one kind that a text shows.
_SHOWN = 25

#: Relative difference of two bounds that are the same.
_SAME_BOUND = 1e-9


@dataclasses.dataclass(frozen=True)
class BaselineChange:
    """What becomes of one reference.

    :ivar kind: ``loosened``, ``gone``, ``tightened``, ``new``; ``moved``, where only what bounds
        nothing changes; or ``unchanged``.
    :ivar old: the row that decides now, published or the site's own.
    :ivar same: the site's own row of the same figure, whose place is taken.
    :ivar before: the bounds in force.
    :ivar more: how many more sessions would let the bound lie where its noise alone puts it.
    """

    kind: str
    unit: str
    old: Row | None
    same: Row | None
    new: Row | None
    before: Bounds | None
    after: Bounds | None
    more: int = 0

    @property
    def row(self) -> Row:
        """The row that it is about."""
        return self.new or self.old

    def fields(self) -> dict:
        """As JSON."""
        return {
            "change": self.kind,
            "id": self.row.id,
            "replaces": self.old.id if self.old else None,
            "unit": self.unit,
            "value": [_value(self.old, self.unit), _value(self.new, self.unit)],
            "lower": [_bound(self.before, "lower"), _bound(self.after, "lower")],
            "upper": [_bound(self.before, "upper"), _bound(self.after, "upper")],
            "more_sessions": self.more,
        }

    def cells(self) -> list[str]:
        """As a line of a table."""
        values = [f"{v:.6g}" for v in (_value(r, self.unit) for r in (self.old, self.new)) if v]
        name = self.row.id
        if self.old and self.old.id != name:
            name += f" (now {self.old.id})"
        bounds = [_told(b) for b in (self.before, self.after)] if self.kind != NEW else [
            _told(self.after)]  # fmt: skip
        if self.kind == GONE:
            bounds[1] = "none"
        return [self.kind, name, f"{' -> '.join(values)} {self.unit}", " -> ".join(bounds)]


def _value(row: Row | None, unit: str) -> float | None:
    return row and row.used(unit)[0]


def _bound(bounds: Bounds | None, side: str) -> float | None:
    value = getattr(bounds, side, math.inf)
    return None if math.isinf(value) else value


def _told(bounds: Bounds | None) -> str:
    return f"[{told(bounds.lower)}, {told(bounds.upper)}]" if bounds else "none"


def changes(proposals: list[Proposal], references: References, path: Path) -> list[BaselineChange]:
    """What each proposed row changes, and which rows of the site's table there are no more.

    A row is held against the bounds that are in force for its test case, be they the site's own or
    published: a site's row takes the place of both. Rows that name no sessions were written by hand
    and are nobody's but their writer's.

    :arg path: the site's table of the system.
    """
    tables = references.tables
    mine = [row for row in tables.rows.values() if _file(tables, row) == path]
    by_key = {_key(row, tables): row for row in mine}
    by_id = {row.id: row for row in mine}
    taken: set[str] = set()
    found = []
    for proposal in proposals:
        same = by_id.get(proposal.row.id) or by_key.get(_key(proposal.row, tables))
        if same:
            taken.add(same.id)
        found.append(_change(proposal, same, references))
    for row in mine:
        if row.sessions and row.id not in taken:
            fom = references.fom(row.benchmark, row.metric)
            found.append(
                BaselineChange(GONE, fom.unit, row, row, None, references.bounds_of(row), None)
            )
    return sorted(found, key=lambda change: (_ORDER.index(change.kind), change.row.id))


def _file(tables: Tables, row: Row) -> Path:
    return Path(tables.where[row.id].rpartition(":")[0])


def _key(row: Row, tables: Tables) -> tuple:
    """What a row is of; how many runs are behind it is no part of that."""
    roles = tables.conditions
    kept = {k: v for k, v in row.conditions.items() if roles[k].role != "describes"}
    return key_of(row.model_copy(update={"conditions": kept}))


def _change(proposal: Proposal, same: Row | None, references: References) -> BaselineChange:
    new = proposal.row
    fom = references.fom(new.benchmark, new.metric)
    before = references.bounds(proposal.case, new.metric, new.message_size)
    after = _bounds_of(new, references)
    old = references.tables.rows[before.decides] if before else same

    def change(kind: str) -> BaselineChange:
        return BaselineChange(kind, fom.unit, old, same, new, before, after, proposal.more)

    if same and (same.value, same.spread, same.unit) == (new.value, new.spread, new.unit):
        return change(SAME)
    if before is None:
        return change(NEW if after or old is None else MOVED)
    gain = _gain(before, after)
    if gain < -_SAME_BOUND:
        return change(LOOSENED)
    return change(TIGHTENED if gain > _SAME_BOUND else MOVED)


def _bounds_of(row: Row, references: References) -> Bounds | None:
    """The bounds of a row that no table has yet."""
    printed = {row.id: {"value": str(row.value), "spread": str(row.spread)}}
    return References(dataclasses.replace(references.tables, printed=printed, rows={})).bounds_of(
        row
    )


def _gain(before: Bounds, after: Bounds | None) -> float:
    """By how much the new bound is stricter, relative to the old reference."""
    if after is None:
        return -math.inf
    if math.isinf(before.upper):
        return (after.lower - before.lower) / before.value
    return (before.upper - after.upper) / before.value


def text(found: list[BaselineChange]) -> list[list[str]]:
    """The changes as lines of a table, of each kind some; unchanged rows are not among them."""
    lines = []
    for kind in _ORDER[:-1]:
        cells = [change.cells() for change in found if change.kind == kind]
        lines += cells[:_SHOWN]
        if len(cells) > _SHOWN:
            lines.append([kind, f"and {len(cells) - _SHOWN} more: --format json", "", ""])
    return lines


def counts(found: list[BaselineChange]) -> str:
    """How many there are of each kind, in words."""
    kinds = Counter(change.kind for change in found)
    return ", ".join(f"{kinds[kind]} {kind}" for kind in _ORDER if kinds[kind]) or "none"


def asserted(found: list[BaselineChange]) -> int:
    """How many of the new rows bound anything; the others are of figures kept as data, or of such
    noise that no measurement could fail."""
    bounds = [change.after for change in found if change.new and change.after]
    return sum(math.isfinite(b.lower) or math.isfinite(b.upper) for b in bounds)


def wanting(found: list[BaselineChange]) -> str:
    """Which bounds more sessions would tighten, in words; empty if none."""
    more = [change.more for change in found if change.more and change.new]
    if not more:
        return ""
    return (
        f"{len(more)} of {len(found)} bounds are wide since there are few sessions yet: "
        f"{min(more)} to {max(more)} more that pass would tighten them"
    )


def to_csv(
    found: list[BaselineChange], references: References, path: Path, by: str, on: str
) -> str:
    """The site's table after the changes: who took a row, and when, stands in it.

    Rows that do not change, and those written by hand, stay as they are printed.

    :arg by: who takes what is new; ``on``: the day.
    """
    tables = references.tables
    rows: dict[str, dict[str, str]] = {}
    taken = {change.same.id for change in found if change.same}
    for change in found:
        if change.kind == SAME:
            rows[change.same.id] = tables.printed[change.same.id]
        elif change.new:
            rows[change.new.id] = _cells(change.new, by, on)
    for row in tables.rows.values():
        if _file(tables, row) == path and not row.sessions and row.id not in taken:
            rows.setdefault(row.id, tables.printed[row.id])
    used = {column for cells in rows.values() for column, cell in cells.items() if cell}
    columns = [name for name in Row.model_fields if name in used or not name.endswith("_used")]
    # Printed as they are, to be read back.
    return formats.as_csv(columns, (rows[name] for name in sorted(rows)), str)


def _cells(row: Row, by: str, on: str) -> dict[str, str]:
    cells = row.model_dump() | {"accepted_by": by, "accepted_on": on}
    cells["conditions"] = ";".join(f"{k}={v}" for k, v in sorted(row.conditions.items()))
    return {name: "" if cell is None else str(cell) for name, cell in cells.items()}


def save(path: Path, content: str) -> None:
    """Writes a site's table, whole or not at all.

    :raises Fault: if it cannot be written, or would not be read again.
    """
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Made anew, so that nothing is written where a link of somebody else's leads.
        partial.unlink(missing_ok=True)
        with partial.open("x", encoding="utf-8") as file:
            file.write(content)
        _, faults = read_rows(partial)
        if faults:
            partial.unlink()
            raise Fault("\n".join(faults), code="reference.wrong-table")
        partial.replace(path)
    except OSError as err:
        raise Fault(
            f"{path}: cannot be written ({err.strerror}): free the disk, or run this as a "
            f"user who may write there",
            code="files.not-writable",
        ) from None
