"""Inventories: the test cases that a system has, and the references of their figures of merit. A
session and ``plumbline lint`` report the difference when one of them disappears or changes.

``plumbline lint --accept`` writes ``systems/inventory/<system>.json`` of the site's folder, to be
reviewed like code:

- ``references``: the rows that bound a figure, by id, each with its value and bounds, or its
  ceiling, in the registered unit. The bounds of a distribution are those for the least number of
  samples that its class requires.
- ``cases``: test case -> row -> the figures that it bounds.
- ``full``: the same for the cases at published scale, which only ``--tag=full`` runs.
- ``folders``: of checks that were loaded with ``-c``, if any.

ReFrame alone does not report a check that no longer loads or no longer fits its system, nor a
reference that was removed or changed.
"""

from __future__ import annotations

import json
import math
import platform
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.text import pluralize, shorten
from plumbline.reference.lookup import References
from plumbline.reference.row import Row

#: A test case's rows, each with the figures that it bounds.
Rows = dict[str, list[str]]


@dataclass(frozen=True)
class PlannedCase:
    """A test case of a dry run.

    :ivar case: its name as ReFrame lists it, without the hash.
    :ivar runs: whether it would run; if not, ``reason`` is the cause and the fix, and ``code`` the
        reason code.
    :ivar seconds: time limit of its job.
    :ivar figures: number of its figures of merit, 0 if they are not known; ``asserted`` of them
        have a reference.
    :ivar references: ids of the rows that bound them.
    :ivar rows: row that decides, or is the ceiling -> the figures that it bounds.
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

    @property
    def known(self) -> bool:
        """Whether its figures are known: also those of a program that is not built."""
        return self.runs or self.figures > 0


@dataclass(frozen=True)
class Inventory:
    """The test cases and references that a system is expected to have.

    :ivar references: row -> ``value``, ``lower`` or ``upper``, or ``ceiling``, and ``unit``;
        ``row x2`` where figures may reach twice the peak that it prints.
    :ivar cases: test case -> its rows.
    :ivar full: the same for cases at published scale.
    :ivar folders: of checks that were loaded with ``-c``.
    """

    references: dict[str, dict] = field(default_factory=dict)
    cases: dict[str, Rows] = field(default_factory=dict)
    full: dict[str, Rows] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    @property
    def all_cases(self) -> dict[str, Rows]:
        """All cases, including those at published scale."""
        return self.cases | self.full

    def bounded(self, case: str) -> set[tuple[str, str]]:
        """Return the figures of a case, each with the row that bounds it."""
        return {
            (figure, name)
            for name, figures in self.all_cases.get(case, {}).items()
            for figure in figures
        }

    def capped(self, case: str) -> set[tuple[str, str]]:
        """Return those of :meth:`bounded` that a ceiling bounds."""
        return {
            (figure, name)
            for figure, name in self.bounded(case)
            if "ceiling" in self.references.get(name, ())
        }

    def text(self) -> str:
        """Return the file's content: sorted, a line for each row and each case's row."""
        cases = {"cases": self.cases, "full": self.full}
        rows = [f"  {_json(name)}: {_json(row)}" for name, row in sorted(self.references.items())]
        parts = [f' "references": {_block(rows, " ")}']
        for key, found in cases.items():
            lines = []
            for case, of_case in sorted(found.items()):
                listed = [f"   {_json(row)}: {_json(of_case[row])}" for row in sorted(of_case)]
                lines.append(f"  {_json(case)}: {_block(listed, '  ')}")
            parts.append(f' "{key}": {_block(lines, " ")}')
        if self.folders:
            parts.append(f' "folders": {_json(self.folders)}')
        return _block(parts, "") + "\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _block(lines: list[str], margin: str) -> str:
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}" if lines else "{}"


def path_of(system: str) -> Path:
    """Return the path of a system's inventory: the site's, or the shipped one of a shipped
    system."""
    systems, name = paths.systems(), f"inventory/{system}.json"
    shipped = systems.find(f"{system}.yaml").parent != systems.own
    return systems.find(name) if shipped else systems.own / name


def linting(system: str, folders: Iterable[str] = ()) -> str:
    """Return the command that compares a system with its inventory.

    :arg folders: of checks, which it loads with ``-c``.
    """
    options = [word for folder in folders for word in ("-c", folder)]
    return shlex.join(["plumbline", "lint", "--system", system, *options])


def accepting(system: str, folders: Iterable[str] = ()) -> str:
    """Return the command that writes a system's inventory."""
    return f"`{linting(system, folders)} --accept`"


def restoring(system: str, folders: Iterable[str] = ()) -> str:
    """Return the remedy for a difference from the inventory."""
    return f"restore it, or if it is intended: {accepting(system, folders)}"


def gone(
    cases: Iterable[str],
    system: str,
    expected: Inventory,
    checks: Collection[str],
    folders: Sequence[str],
) -> list[str]:
    """Return the cases of an inventory that do not exist, with the remedy: a line for each, or for
    each check that is not loaded.

    :arg checks: those that are loaded.
    :arg folders: of ``-c``.
    """
    path, accept = path_of(system), accepting(system, folders)
    loaded = [str(Path(folder).resolve()) for folder in folders]
    load = loading([folder for folder in expected.folders if folder not in loaded])
    lines: list[str] = []
    lost: dict[str, list[str]] = {}
    for case in cases:
        check = case.split()[0]
        if check in checks:
            remedy = f"correct the check or its system, or if it is intended: {accept}"
            lines.append(f"{case}: in {path}, but no longer found: {remedy}")
        else:
            lost.setdefault(check, []).append(case)
    return lines + [
        f"check {check}: not loaded, but {path} has its {shorten(found)}: load "
        f"its folder with {load}; or, if it was removed on purpose: {accept}"
        for check, found in lost.items()
    ]


def loading(folders: Sequence[str]) -> str:
    """Return how folders of checks are loaded, which an inventory may know."""
    options = shlex.join(word for folder in folders for word in ("-c", folder)) or "-c FOLDER"
    return f"{options}, or move its files to {paths.site() / 'checks'}, which is always loaded"


def read(system: str) -> Inventory | None:
    """Return a system's inventory, or ``None`` if none was written yet.

    :raises Fault: if the file is not an inventory.
    """
    path = path_of(system)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = Inventory(**content)
        for case in found.all_cases:
            found.bounded(case)
        for limits in found.references.values():
            _limits_text(limits)
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as err:
        raise Fault(
            f"{path}: not an inventory: {err}; {accepting(system)} writes a new one",
            code="system.wrong-inventory",
        ) from None


def write(system: str, found: Inventory) -> Path:
    """Write a system's inventory into the site's folder, and return its path.

    :raises Fault: if it cannot be written.
    """
    path = paths.systems().own / "inventory" / f"{system}.json"
    with files.writing(path, "cannot be written ({}): run this as the user who owns the folder, or "
                             "set PLUMBLINE_SITE to a folder that you can write"):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, found.text())
    return path


def from_plan(
    planned: Iterable[PlannedCase],
    references: References,
    before: Inventory | None = None,
    folders: Iterable[str] = (),
) -> Inventory:
    """Return the inventory of planned test cases.

    :arg before: the earlier inventory: a case whose figures are not known here keeps its rows that
        still bound a figure.
    :arg folders: of checks that were loaded with ``-c``.
    """
    cases: dict[str, Rows] = {}
    full: dict[str, Rows] = {}
    limits: dict[str, dict] = {}
    for case in planned:
        rows = case.rows
        if not case.known and before:
            rows = before.all_cases.get(case.case, {})
        limits |= {name: row for name in rows if (row := _limits(references, name))}
        of_case = {name: sorted(rows[name]) for name in rows if name in limits}
        (full if "full" in case.tags else cases)[case.case] = of_case
    return Inventory(limits, cases, full, [str(Path(folder).resolve()) for folder in folders])


def _limits(references: References, name: str) -> dict | None:
    """Return the bounds of a row; ``None`` if it does not exist, or bounds nothing."""
    row, times = _row(references, name)
    if row is None or row.kind not in ("measured", "peak") or not references.may_decide(row):
        return None
    unit = references.fom(row.benchmark, row.metric).unit
    if row.kind == "peak":
        peak = references.peak_of(row, unit, references.rule_of(row).better)
        return {"ceiling": _short(times * peak), "unit": unit}
    bounds = references.bounds_of(row)
    if bounds is None:
        return None
    found = {"value": bounds.value, "lower": bounds.lower, "upper": bounds.upper}
    return {key: _short(limit) for key, limit in found.items() if math.isfinite(limit)} | {
        "unit": unit
    }


def _row(references: References, name: str) -> tuple[Row | None, float]:
    """Return a row of an inventory, and the factor from its peak to the ceiling."""
    row, _, times = name.partition(" x")
    return references.tables.rows.get(row), float(times or 1)


def _short(value: float) -> float:
    """Return a number without digits that are rounding errors."""
    return float(f"{value:.8g}")


def changed_references(expected: Inventory, references: References) -> list[str]:
    """Return the rows whose bounds changed, a line each, whether or not their cases run here."""
    lines = []
    for name, was in expected.references.items():
        now = _limits(references, name)
        if now == was:
            continue
        figures = sum(len(rows.get(name, ())) for rows in expected.all_cases.values())
        what = f"reference {name}, which bounds {pluralize(figures, 'figure')}"
        if now is None and _row(references, name)[0] is None:
            lines.append(f"{what}: was removed; it was {_limits_text(was)}")
        elif now is None:
            lines.append(f"{what}: no longer bounds a figure; it was {_limits_text(was)}")
        else:
            lines.append(f"{what}: was {_limits_text(was)}; now {_limits_text(now)}")
    return lines


def _limits_text(limits: dict) -> str:
    names = {"value": "", "lower": "at least ", "upper": "at most ", "ceiling": "ceiling "}
    parts = [f"{word}{limits[key]:.8g}" for key, word in names.items() if key in limits]
    return f"{', '.join(parts)} {limits['unit']}"


def compare(
    expected: Inventory, found: dict[str, set[tuple[str, str]]], references: References
) -> tuple[list[str], list[str]]:
    """Return the test cases whose figures other rows bound than expected, a line each: those that
    lost a row, and those with an unexpected one.

    What :func:`changed_references` reports is not repeated. A baseline of ``local`` that was made
    on another host bounds nothing here.

    :arg found: the figures of each case with their rows, as of :func:`bounded_figures`.
    """
    lost, new = [], []
    for case, bounded in found.items():
        if case not in expected.all_cases:
            continue
        was = expected.bounded(case)
        gone = [
            f"{figure} by {name}"
            for figure, name in sorted(was - bounded)
            if _limits(references, name) and not elsewhere(references, name)
        ]
        more = [figure for figure, _ in sorted(bounded - was)]
        if gone:
            figures = pluralize(len(gone), "figure")
            lost.append(f"{case}: {figures} no longer bounded as expected: {shorten(gone)}")
        elif more:
            new.append(
                f"{case}: {pluralize(len(more), 'figure')} with a new reference: {shorten(more)}"
            )
    return lost, new


def elsewhere(references: References, name: str) -> bool:
    """Return whether a row is the baseline of another host."""
    row, _ = _row(references, name)
    host = platform.node()
    return row is not None and row.conditions.get("host", host) != host


def bounded_figures(
    planned: Iterable[PlannedCase], references: References
) -> dict[str, set[tuple[str, str]]]:
    """Return the figures with a reference, and its row, of each case whose figures are known."""
    known = [case for case in planned if case.known]
    now = from_plan(known, references)
    return {case.case: now.bounded(case.case) for case in known}
