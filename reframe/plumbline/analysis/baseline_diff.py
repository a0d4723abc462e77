"""What a new baseline would change of a site's references, and writing it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from pathlib import Path

from plumbline.analysis.baseline import Proposal
from plumbline.analysis.screen.input import nights
from plumbline.core import files, formats
from plumbline.core.errors import Fault
from plumbline.reference import lookup
from plumbline.reference.lookup import Bounds, References
from plumbline.reference.registers import Tables
from plumbline.reference.row import Row, key_of
from plumbline.reference.tables import read_rows

#: Kinds of a change, in the order of the output; the first two need --accept.
LOOSENED, GONE = TO_ACCEPT = ("loosened", "gone")
TIGHTENED, NEW, MOVED, SAME = ("tightened", "new", "moved", "unchanged")
_ORDER = (*TO_ACCEPT, TIGHTENED, NEW, MOVED, SAME)

#: Lines of one kind that the text shows.
_SHOWN = 25

#: Largest relative difference of bounds that count as the same.
_SAME_BOUND = 1e-9


@dataclasses.dataclass(frozen=True)
class BaselineChange:
    """What becomes of one reference.

    :ivar kind: ``loosened``, ``gone``, ``tightened``, ``new``; ``moved`` if the bounds do not
        change; or ``unchanged``.
    :ivar old: the row that decides now, published or the site's own.
    :ivar same: the site's own row of the same figure, which is replaced.
    :ivar before: the present bounds.
    :ivar more: how many more sessions would make the bound as tight as its noise allows.
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
        """The new row, or the old one if it is gone."""
        row = self.new or self.old
        assert row is not None
        return row

    def fields(self) -> dict[str, object]:
        """Return it as an object of JSON."""
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
        """Return it as a line of a table."""
        values = [f"{v:.6g}" for v in (_value(r, self.unit) for r in (self.old, self.new)) if v]
        name = self.row.id
        if self.old and self.old.id != name:
            name += f" (now {self.old.id})"
        sides = [self.after] if self.kind == NEW else [self.before, self.after]
        bounds = map(_interval, sides)
        return [self.kind, name, f"{' -> '.join(values)} {self.unit}", " -> ".join(bounds)]


def _value(row: Row | None, unit: str) -> float | None:
    return row.used(unit)[0] if row else None


def _bound(bounds: Bounds | None, side: str) -> float | None:
    value = getattr(bounds, side, math.inf)
    return None if math.isinf(value) else value


def _interval(bounds: Bounds | None) -> str:
    if bounds is None:
        return "none"
    return f"[{lookup.format_bound(bounds.lower)}, {lookup.format_bound(bounds.upper)}]"


def changes(proposals: list[Proposal], references: References, path: Path) -> list[BaselineChange]:
    """Return what each proposed row changes, and which rows of the site's table are gone.

    A row is compared with the present bounds of its test case, the site's own or published: it
    replaces both. It keeps the id of the site's own row of the same figure; the id of a new row is
    made unique. Rows without sessions were written by hand, and are kept.

    :arg path: the site's table of the system.
    """
    tables = references.tables
    own_rows = [row for row in tables.rows.values() if _file(tables, row) == path]
    by_key = {_key(row, tables): row for row in own_rows}
    replaced = [by_key.pop(_key(proposal.row, tables), None) for proposal in proposals]
    taken = {row.id for row in replaced if row}
    gone = [row for row in own_rows if row.sessions and row.id not in taken]
    used = tables.rows.keys() - {row.id for row in gone}
    wanted = Counter(proposal.row.id for proposal in proposals)
    found = []
    for proposal, same in zip(proposals, replaced, strict=True):
        name = same.id if same else _free_id(proposal.row, used, wanted)
        used.add(name)
        row = proposal.row.model_copy(update={"id": name})
        found.append(_change(dataclasses.replace(proposal, row=row), same, references))
    for row in gone:
        unit, before = references.fom(row.benchmark, row.metric).unit, references.bounds_of(row)
        found.append(BaselineChange(GONE, unit, row, row, None, before, None))
    return sorted(found, key=lambda change: (_ORDER.index(change.kind), change.row.id))


def _free_id(row: Row, used: set[str], wanted: Counter[str]) -> str:
    """Return an id that no other row has. The proposed one has not all that a row is known by: the
    cases of a check at several scales share it, and differ in nodes and tasks per node.

    :arg used: ids of other rows. :arg wanted: how many proposed rows have each id.
    """
    name = row.id
    if (wanted[name] > 1 or name in used) and row.nodes is not None:
        name += f"-{row.nodes}x{row.ppn}"
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in used)


def _file(tables: Tables, row: Row) -> Path:
    return Path(tables.where[row.id].rpartition(":")[0])


def _key(row: Row, tables: Tables) -> tuple[object, ...]:
    """Return what identifies the figure of a row, without conditions that only describe it, such as
    the number of runs."""
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
    """Return the bounds of a row that is not in a table yet."""
    printed = {row.id: {"value": str(row.value), "spread": str(row.spread)}}
    tables = dataclasses.replace(references.tables, printed=printed, rows={})
    return References(tables).bounds_of(row)


def _gain(before: Bounds, after: Bounds | None) -> float:
    """Return by how much the new bound is tighter, relative to the old reference."""
    if after is None:
        return -math.inf
    if math.isinf(before.upper):
        return (after.lower - before.lower) / before.value
    return (before.upper - after.upper) / before.value


def text(found: list[BaselineChange]) -> list[list[str]]:
    """Return the changes as lines of a table, limited for each kind, without unchanged rows."""
    lines = []
    for kind in _ORDER[:-1]:
        cells = [change.cells() for change in found if change.kind == kind]
        lines += cells[:_SHOWN]
        if len(cells) > _SHOWN:
            lines.append([kind, f"and {len(cells) - _SHOWN} more: --format json", "", ""])
    return lines


def counts(found: list[BaselineChange]) -> str:
    """Return the number of each kind, as text."""
    kinds = Counter(change.kind for change in found)
    return ", ".join(f"{kinds[kind]} {kind}" for kind in _ORDER if kinds[kind]) or "none"


def asserted(found: list[BaselineChange]) -> int:
    """Return the number of new rows with a finite bound.

    The others are of figures that are kept as data, or too noisy for any measurement to fail.
    """
    bounds = [change.after for change in found if change.new and change.after]
    return sum(math.isfinite(b.lower) or math.isfinite(b.upper) for b in bounds)


def too_wide(found: list[BaselineChange]) -> str:
    """Return a message on bounds that more sessions would tighten; empty if there are none."""
    more = [change.more for change in found if change.more and change.new]
    if not more:
        return ""
    return (
        f"{len(more)} of {len(found)} bounds are wide because there are few sessions: "
        f"{min(more)} to {max(more)} more that pass would tighten them"
    )


def of_one_night(found: list[BaselineChange]) -> str:
    """Return a message on bounds from a single night; empty if there are none.

    What varies between nights (other jobs, temperatures, the host of a virtual machine) is not in
    their spread. One such machine was seen to have latencies longer by a third after ten minutes.
    """
    rows = [change.new for change in found if change.new]
    single = [row for row in rows if len({*nights(row.sessions.split()).values()}) == 1]
    if not single:
        return ""
    return (
        f"{len(single)} of {len(rows)} bounds come from one night and do not contain what changes "
        f"between nights: repeat this command once there are sessions of more nights"
    )


def to_csv(
    found: list[BaselineChange], references: References, path: Path, by: str, on: str
) -> str:
    """Return the site's table after the changes.

    Rows that do not change, and those written by hand, are copied as they are.

    :arg by: who accepts new rows. :arg on: the day.
    """
    tables = references.tables
    rows: dict[str, dict[str, str]] = {}
    taken = {change.same.id for change in found if change.same}
    for change in found:
        if change.kind == SAME and change.same:
            rows[change.same.id] = tables.printed[change.same.id]
        elif change.new:
            rows[change.new.id] = _cells(change.new, by, on)
    for row in tables.rows.values():
        if _file(tables, row) == path and not row.sessions and row.id not in taken:
            rows.setdefault(row.id, tables.printed[row.id])
    used = {column for cells in rows.values() for column, cell in cells.items() if cell}
    columns = [name for name in Row.model_fields if name in used or not name.endswith("_used")]
    # Unchanged, to be read back.
    return formats.as_csv(columns, (rows[name] for name in sorted(rows)), str)


def _cells(row: Row, by: str, on: str) -> dict[str, str]:
    cells = row.model_dump() | {"accepted_by": by, "accepted_on": on}
    cells["conditions"] = ";".join(f"{k}={v}" for k, v in sorted(row.conditions.items()))
    return {name: "" if cell is None else str(cell) for name, cell in cells.items()}


def save(path: Path, content: str) -> None:
    """Write a site's table, completely or not at all.

    :raises Fault: if it cannot be written, or is not valid.
    """
    remedy = "free some disk space, or run this as a user with write permission"
    with files.writing(path, "cannot be written ({}): " + remedy):
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as partial:
            with partial.open("x", encoding="utf-8") as file:
                file.write(content)
            _, faults = read_rows(partial)
            if faults:
                raise Fault("\n".join(faults), code="reference.wrong-table")
