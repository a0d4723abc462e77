"""Inventories: the test cases that a system has and what bounds their figures of merit, so that
what vanishes, or is edited, is noticed.

``plumbline lint --accept`` writes ``systems/inventory/<system>.json``, to be reviewed like code:

- ``references``: the rows that bound something, by id, each with its value and its bounds, or as a
  ceiling, in the registered unit. The bounds of a distribution are those of as few samples as its
  class asks for.
- ``cases``: test case -> row -> the figures that it bounds.
- ``full``: the same for the cases at published scale, which only ``--tag=full`` runs.

ReFrame alone lets a check that no longer loads, or no longer fits its system, disappear without a
word, and a reference that was removed or edited changes nothing but the verdict.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import counted, some
from plumbline.reference.lookup import References
from plumbline.reference.row import Row

#: What is wrong with a file of the earlier format.
EARLIER = "is of an earlier format, which does not have what each figure is bounded by"

#: A test case's rows, each with the figures that it bounds.
Rows = dict[str, list[str]]


@dataclass(frozen=True)
class PlannedCase:
    """A test case of a dry run.

    :ivar name: as ReFrame lists it, without the hash.
    :ivar runs: whether it would run; if not, ``reason`` says why, and how to fix it, and
        ``code`` is the reason's.
    :ivar seconds: that its job may take, by its time limit.
    :ivar figures: how many figures of merit it measures, and ``asserted``, how many of them a
        reference bounds.
    :ivar references: ids of the rows that bound them.
    :ivar rows: the row that decides, or is the ceiling, -> the figures that it bounds.
    """

    case: str
    tags: list[str]
    runs: bool
    result: str
    reason: str | None
    seconds: float
    figures: int
    asserted: int
    references: list[str]
    rows: dict[str, list[str]]
    code: str | None = None


@dataclass(frozen=True)
class Inventory:
    """What a system is expected to have.

    :ivar references: row -> ``value``, ``lower`` or ``upper``, or ``ceiling``, and ``unit``;
        ``row x2`` where figures may reach twice the peak that it prints.
    :ivar cases: test case -> its rows.
    :ivar full: the same for cases at published scale.
    :ivar counts: in the place of rows, in a file of the format before this one: test case -> how
        many of its figures were asserted.
    """

    references: dict[str, dict] = field(default_factory=dict)
    cases: dict[str, Rows] = field(default_factory=dict)
    full: dict[str, Rows] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def every(self) -> dict[str, Rows]:
        """All cases, those at published scale too."""
        return self.cases | self.full

    def bounded(self, case: str) -> set[tuple[str, str]]:
        """The figures of a case, each with the row that bounds it."""
        return {
            (figure, name)
            for name, figures in self.every.get(case, {}).items()
            for figure in figures
        }

    def capped(self, case: str) -> set[tuple[str, str]]:
        """Those of :meth:`bounded` that are ceilings."""
        return {
            (figure, name)
            for figure, name in self.bounded(case)
            if "ceiling" in self.references.get(name, ())
        }

    def text(self) -> str:
        """The file: sorted, a line for each row and each case's row."""
        cases = {"cases": self.cases, "full": self.full}
        rows = [f"  {_json(name)}: {_json(told)}" for name, told in sorted(self.references.items())]
        parts = [f' "references": {_block(rows, " ")}']
        for key, found in cases.items():
            lines = []
            for case, of_case in sorted(found.items()):
                listed = [f"   {_json(row)}: {_json(of_case[row])}" for row in sorted(of_case)]
                lines.append(f"  {_json(case)}: {_block(listed, '  ')}")
            parts.append(f' "{key}": {_block(lines, " ")}')
        return _block(parts, "") + "\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _block(lines: list[str], margin: str) -> str:
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}" if lines else "{}"


def path_of(system: str) -> Path:
    """The file of a system's inventory."""
    return paths.systems() / "inventory" / f"{system}.json"


def accepting(system: str) -> str:
    """The command that writes a system's inventory."""
    return f"`plumbline lint --system {system} --accept`"


def restoring(system: str) -> str:
    """What to do about something that is not as the inventory has it."""
    return f"restore it, or if it is meant: {accepting(system)}"


def read(system: str) -> Inventory | None:
    """A system's inventory; ``None`` where none was written yet.

    :raises Fault: if the file is no inventory.
    """
    path = path_of(system)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "cases" not in content:
            counts = {str(case): int(asserted) for case, asserted in content.items()}
            return Inventory(cases={case: {} for case in counts}, counts=counts)
        found = Inventory(**content)
        for case in found.every:
            found.bounded(case)
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError) as err:
        raise Fault(
            f"{path}: no inventory: {err}; {accepting(system)} writes it anew",
            code="system.wrong-inventory",
        ) from None


def write(system: str, found: Inventory) -> Path:
    """Writes a system's inventory."""
    path = path_of(system)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.text(), encoding="utf-8")
    return path


def of_cases(
    surveyed: Iterable[PlannedCase], references: References, before: Inventory | None = None
) -> Inventory:
    """What a survey found.

    :arg before: what was expected: a case that is skipped here, as its programs are not built,
        keeps its rows, as far as these still bound anything.
    """
    cases: dict[str, Rows] = {}
    full: dict[str, Rows] = {}
    told: dict[str, dict] = {}
    for case in surveyed:
        rows = case.rows
        if not case.runs and before:
            rows = before.every.get(case.case, {})
        told |= {name: row for name in rows if (row := _told(references, name))}
        of_case = {name: sorted(rows[name]) for name in rows if name in told}
        (full if "full" in case.tags else cases)[case.case] = of_case
    return Inventory(told, cases, full)


def _told(references: References, name: str) -> dict | None:
    """What a row bounds; ``None`` if it is not there, or bounds nothing."""
    row, times = _row(references, name)
    if row is None or row.kind not in ("measured", "peak") or not references.may_decide(row):
        return None
    unit = references.fom(row.benchmark, row.metric).unit
    if row.kind == "peak":
        return {"ceiling": _short(times * row.used(unit)[0]), "unit": unit}
    bounds = references.bounds_of(row)
    if bounds is None:
        return None
    limits = {"value": bounds.value, "lower": bounds.lower, "upper": bounds.upper}
    return {key: _short(limit) for key, limit in limits.items() if math.isfinite(limit)} | {
        "unit": unit
    }


def _row(references: References, name: str) -> tuple[Row | None, float]:
    """The row that an inventory names, and how many times its peak is a ceiling."""
    row, _, times = name.partition(" x")
    return references.tables.rows.get(row), float(times or 1)


def _short(value: float) -> float:
    """A number without the digits that only its arithmetic has."""
    return float(f"{value:.8g}")


def edited(expected: Inventory, references: References) -> list[str]:
    """The rows that no longer bound what they did, a line each, whatever runs here."""
    lines = []
    for name, was in expected.references.items():
        now = _told(references, name)
        if now == was:
            continue
        figures = sum(len(rows.get(name, ())) for rows in expected.every.values())
        what = f"reference {name}, which bounds {counted(figures, 'figure')}"
        if now is None and _row(references, name)[0] is None:
            lines.append(f"{what}: is gone; it was {_words(was)}")
        elif now is None:
            lines.append(f"{what}: bounds nothing any more; it was {_words(was)}")
        else:
            lines.append(f"{what}: was {_words(was)}; is {_words(now)}")
    return lines


def _words(told: dict) -> str:
    names = {"value": "", "lower": "at least ", "upper": "at most ", "ceiling": "ceiling "}
    limits = [f"{words}{told[key]:.8g}" for key, words in names.items() if key in told]
    return f"{', '.join(limits)} {told['unit']}"


def compared(
    expected: Inventory, found: dict[str, set[tuple[str, str]]], references: References
) -> tuple[list[str], list[str]]:
    """The test cases whose figures are bounded by other rows than expected, a line each: those that
    lost a row, and those that have one that is not expected.

    What :func:`edited` reports is not reported again. A baseline of ``local`` that is another
    host's bounds nothing here.

    :arg found: what bounds the figures of each case, as :func:`of_survey` and
        have it.
    """
    lost, new = [], []
    for case, bounded in found.items():
        if case not in expected.every or case in expected.counts:
            continue
        was = expected.bounded(case)
        gone = [
            f"{figure} by {name}"
            for figure, name in sorted(was - bounded)
            if _told(references, name) and not elsewhere(references, name)
        ]
        more = [figure for figure, _ in sorted(bounded - was)]
        if gone:
            figures = counted(len(gone), "figure")
            lost.append(f"{case}: {figures} no longer bounded as expected: {some(gone)}")
        elif more:
            new.append(f"{case}: {counted(len(more), 'figure')} bounded anew: {some(more)}")
    return lost, new


def elsewhere(references: References, name: str) -> bool:
    """Whether a row is the baseline of another host than this one."""
    row, _ = _row(references, name)
    here = platform.node()
    return row is not None and row.conditions.get("host", here) != here


def of_survey(
    surveyed: Iterable[PlannedCase], references: References
) -> dict[str, set[tuple[str, str]]]:
    """What bounds the figures of each case that would run."""
    running = [case for case in surveyed if case.runs]
    now = of_cases(running, references)
    return {case.case: now.bounded(case.case) for case in running}
