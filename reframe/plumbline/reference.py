"""References: from the tables to the interval that a figure of merit must lie in.

Pure: knows nothing of ReFrame. A table with a faulty row is refused whole, since a run that
skipped the row would assert less than it seems to.
"""

from __future__ import annotations

import csv
import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import yaml

from plumbline import placement, units
from plumbline.errors import Fault
from plumbline.parse import variable

Statistic = Literal["best", "mean", "median", "min", "max", "std", "p99", "single", "unstated"]
Kind = Literal["measured", "peak", "target", "derived"]


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
            raise ValueError(f"{key!r} stands twice")
        pairs[key] = value
    return pairs


Unstated = pydantic.BeforeValidator(_empty_is_unstated)
Count = Annotated[int | None, pydantic.Field(ge=0), Unstated]
Number = Annotated[float, pydantic.Field(allow_inf_nan=False)]


class Row(pydantic.BaseModel):
    """One printed number with its source and conditions: a line of a table.

    An empty cell means unstated and matches any case. ``value``, ``spread`` and ``unit`` are as
    printed; where a misprint is read differently, ``value_used`` and ``unit_used`` say how.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    id: Annotated[str, pydantic.Field(min_length=1)]
    source: Annotated[str, pydantic.Field(min_length=1)]
    locator: Annotated[str, pydantic.Field(min_length=1)]
    system: Annotated[str, pydantic.Field(min_length=1)]
    toolchain: str = ""
    benchmark: Annotated[str, pydantic.Field(min_length=1)]
    metric: Annotated[str, pydantic.Field(min_length=1)]
    placement: str = ""
    message_size: Count = None
    nodes: Count = None
    ppn: Count = None
    conditions: Annotated[dict[str, str], pydantic.BeforeValidator(_conditions)] = {}
    value: Number
    spread: Annotated[Number | None, pydantic.Field(ge=0), Unstated] = None
    unit: Annotated[str, pydantic.Field(min_length=1)]
    value_used: Annotated[Number | None, Unstated] = None
    unit_used: str = ""
    statistic: Statistic
    kind: Kind
    note: str = ""
    sessions: str = ""
    date: str = ""

    @pydantic.field_validator("placement")
    @classmethod
    def _known_placement(cls, name: str) -> str:
        if name and not placement.known(name):
            raise ValueError(f"unknown placement; known are {placement.describe()}")
        return name

    @property
    def variable(self) -> str:
        return variable(self.metric, self.message_size)

    def used(self, unit: str) -> tuple[float, float]:
        """Value and spread as they are used, in the given unit.

        :raises units.UnitError: if the units do not measure the same thing.
        """
        value = self.value if self.value_used is None else self.value_used
        factor = units.factor(self.unit_used or self.unit, unit)
        return value * factor, (self.spread or 0.0) * factor


class Fom(pydantic.BaseModel):
    """What ``foms.yaml`` registers of a metric."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    unit: str
    tolerance: Annotated[str, pydantic.Field(alias="class")]
    resolution: float = 0.0


class _FomGroup(Fom):
    metrics: list[str]


class Tolerance(pydantic.BaseModel):
    """How far a figure of merit of one class may lie from its reference."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    better: Literal["higher", "lower"]
    floor: Annotated[float, pydantic.Field(gt=0, lt=1)]
    spreads: Annotated[float, pydantic.Field(ge=0)]
    reason: str

    def best(self, samples: Sequence[float]) -> float:
        return max(samples) if self.better == "higher" else min(samples)


class _Baseline(pydantic.BaseModel):
    sessions: Annotated[int, pydantic.Field(ge=2)]


class Rules(pydantic.BaseModel):
    """``tolerance.yaml``."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    classes: dict[str, Tolerance]
    decides: list[Statistic]
    baseline: _Baseline


@dataclass(frozen=True)
class Case:
    """The conditions under which a figure of merit was measured.

    :ivar conditions: what has no column of its own; a row's conditions must all be met.
    """

    system: str
    partition: str
    environment: str
    benchmark: str
    placement: str
    nodes: int
    ppn: int
    conditions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """The interval that a figure of merit must lie in, and where it comes from.

    :ivar value: the reference in the figure's unit.
    :ivar lower: lower bound, minus infinity where open.
    :ivar upper: upper bound, infinity where open.
    :ivar statistic: how samples are summarized before they are compared.
    :ivar decides: id of the row that decides.
    :ivar source: source and locator of that row.
    :ivar others: ids of the rows that match equally well.
    """

    value: float
    lower: float
    upper: float
    statistic: str
    decides: str
    source: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A figure of merit, summarized over its samples and held against its bounds.

    :ivar verdict: ``pass``, ``fail``, ``above-ceiling`` or ``not-asserted``.
    :ivar ceiling: the theoretical peak, if one is known.
    """

    value: float
    statistic: str
    verdict: str
    bounds: Bounds | None
    ceiling: float | None
    ceiling_id: str | None


class References:
    """All tables, the register of figures of merit and the rules of tolerance."""

    def __init__(
        self, rows: Sequence[Row], foms: dict[str, dict[str, Fom]], rules: Rules, sources: dict
    ):
        self.rows = tuple(rows)
        self.foms = foms
        self.rules = rules
        self.sources = sources
        self._by_metric: dict[tuple[str, str, str], list[Row]] = {}
        for row in rows:
            self._by_metric.setdefault((row.system, row.benchmark, row.metric), []).append(row)

    def fom(self, benchmark: str, metric: str) -> Fom:
        """What is registered of a metric.

        :raises Fault: if it is not registered.
        """
        try:
            return self.foms[benchmark][metric]
        except KeyError:
            raise Fault(
                f"reference/foms.yaml: benchmark {benchmark!r} has no metric {metric!r}; add it "
                f"with its unit and class"
            ) from None

    def matching(self, case: Case, metric: str, size: int | None, kind: Kind) -> list[Row]:
        """The rows of a kind that match a case best, all of them where several match equally.

        A site's own rows win over published ones.
        """
        scored = []
        for row in self._by_metric.get((case.system, case.benchmark, metric), ()):
            if row.kind == kind and (score := _score(row, case, size)) is not None:
                scored.append(((row.source == "site", score), row))
        best = max((score for score, _ in scored), default=None)
        return [row for score, row in scored if score == best]

    def bounds(self, case: Case, metric: str, size: int | None) -> Bounds | None:
        """The interval for a figure of merit of a case, ``None`` where no row bounds it."""
        order = self.rules.decides
        rows = [
            row for row in self.matching(case, metric, size, "measured") if row.statistic in order
        ]
        if not rows:
            return None
        rows.sort(key=lambda row: (order.index(row.statistic), row.id))
        row, fom = rows[0], self.fom(case.benchmark, metric)
        rule = self.rules.classes[fom.tolerance]
        value, spread = row.used(fom.unit)
        distance = max(rule.floor * abs(value), rule.spreads * spread, fom.resolution)
        higher = rule.better == "higher"
        return Bounds(
            value,
            value - distance if higher else -math.inf,
            math.inf if higher else value + distance,
            row.statistic,
            row.id,
            f"{row.source}, {row.locator}",
            tuple(other.id for other in rows[1:]),
        )

    def judge(
        self, case: Case, metric: str, size: int | None, samples: Sequence[float]
    ) -> Judgement:
        """Summarizes the samples by the reference's statistic and gives the verdict.

        Where nothing is asserted, the summary is the median.
        """
        bounds = self.bounds(case, metric, size)
        fom = self.fom(case.benchmark, metric)
        statistic = bounds.statistic if bounds else "median"
        value = summarize(samples, statistic, self.rules.classes[fom.tolerance])
        peaks = self.matching(case, metric, size, "peak")
        ceiling = min(((row.used(fom.unit)[0], row.id) for row in peaks), default=(None, None))
        if ceiling[0] is not None and max(samples) > ceiling[0]:
            verdict = "above-ceiling"
        elif bounds is None:
            verdict = "not-asserted"
        else:
            verdict = "pass" if bounds.lower <= value <= bounds.upper else "fail"
        return Judgement(value, statistic, verdict, bounds, *ceiling)


def _score(row: Row, case: Case, size: int | None) -> int | None:
    """How many of the row's stated cells the case meets; ``None`` if it misses one."""
    stated = [
        (row.toolchain or None, case.environment),
        (row.placement or None, case.placement),
        (row.nodes, case.nodes),
        (row.ppn, case.ppn),
    ]
    conditions = {"partition": case.partition, **case.conditions}
    stated += [(value, conditions.get(key)) for key, value in row.conditions.items()]
    # A size is part of what was measured: a figure without one never stands for one with.
    if row.message_size != size:
        return None
    met = [(told, got) for told, got in stated if told is not None]
    return len(met) if all(told == got for told, got in met) else None


def summarize(samples: Sequence[float], statistic: str, rule: Tolerance) -> float:
    """One value from the samples, by the statistic that the reference printed.

    A single or unstated statistic is met by the median, which one odd sample cannot move.
    """
    if statistic == "best":
        return rule.best(samples)
    if statistic == "mean":
        return statistics.fmean(samples)
    return statistics.median(samples)


def read_yaml(path: Path) -> object:
    """A YAML file's content.

    :raises Fault: if it cannot be read; the text names file, line and column.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise Fault(f"{path}{where}: no valid YAML: {err.problem or err.context}") from None
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as err:
        raise Fault(f"{path}: cannot be read: {err}") from None


def read_rows(path: Path) -> tuple[list[Row], list[str]]:
    """A table's rows and its faults, each with file, line and column."""
    rows, faults = [], []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            required = {name for name, cell in Row.model_fields.items() if cell.is_required()}
            missing = required - set(reader.fieldnames or ())
            if missing:
                return [], [f"{path}:1: columns missing: {', '.join(sorted(missing))}"]
            for cells in reader:
                where = f"{path}:{reader.line_num}"
                if None in cells or None in cells.values():
                    faults.append(f"{where}: more or fewer cells than the header has columns")
                    continue
                try:
                    row = Row.model_validate(cells)
                except pydantic.ValidationError as err:
                    for fault in err.errors():
                        column = fault["loc"][0] if fault["loc"] else "row"
                        cell = cells.get(str(column))
                        faults.append(f"{where}: column {column}: {cell!r}: {fault['msg']}")
                    continue
                rows.append(row)
    except (OSError, csv.Error, UnicodeDecodeError) as err:
        faults.append(f"{path}: cannot be read: {err}")
    return rows, faults


def _faults_between(rows: list[tuple[Path, Row]], foms: dict, rules: Rules, sources: dict):
    ids: dict[str, Path] = {}
    for path, row in rows:
        where = f"{path}: row {row.id}"
        if row.id in ids:
            yield f"{where}: column id: also in {ids[row.id]}"
        ids[row.id] = path
        if row.source not in sources:
            yield f"{where}: column source: {row.source!r} is not in sources.yaml"
        fom = foms.get(row.benchmark, {}).get(row.metric)
        if fom is None:
            yield f"{where}: column metric: {row.benchmark} {row.metric} is not in foms.yaml"
            continue
        try:
            value, spread = row.used(fom.unit)
        except units.UnitError as err:
            yield f"{where}: column unit: {err}"
            continue
        if spread > abs(value):
            yield f"{where}: column spread: larger than the value"
        if row.kind == "measured" and value <= 0:
            yield f"{where}: column value: {value:g} is not positive"


def _read_model(path: Path, model: type[pydantic.BaseModel]):
    try:
        return model.model_validate(read_yaml(path))
    except pydantic.ValidationError as err:
        fault = err.errors()[0]
        place = ".".join(map(str, fault["loc"])) or "file"
        raise Fault(f"{path}: {place}: {fault['msg']}") from None


class _Register(pydantic.RootModel[dict[str, list[_FomGroup]]]):
    pass


def read_foms(path: Path) -> dict[str, dict[str, Fom]]:
    """The register of figures of merit: benchmark -> metric -> unit, class, resolution.

    :raises Fault: if the file is faulty or registers a metric twice.
    """
    foms: dict[str, dict[str, Fom]] = {}
    for benchmark, groups in _read_model(path, _Register).root.items():
        metrics = foms.setdefault(benchmark, {})
        for group in groups:
            for metric in group.metrics:
                if metric in metrics:
                    raise Fault(f"{path}: {benchmark}: {metric} is registered twice")
                metrics[metric] = group
    return foms


def load(folder: Path) -> References:
    """Reads all tables of a folder and of its ``site/``.

    :raises Fault: with every fault of every table, a line each.
    """
    rules = _read_model(folder / "tolerance.yaml", Rules)
    foms = read_foms(folder / "foms.yaml")
    sources = read_yaml(folder / "sources.yaml")
    if not isinstance(sources, dict):
        raise Fault(f"{folder / 'sources.yaml'}: no mapping of source keys")
    for benchmark, metrics in foms.items():
        for metric, fom in metrics.items():
            if fom.tolerance not in rules.classes:
                raise Fault(
                    f"{folder / 'foms.yaml'}: {benchmark} {metric}: class {fom.tolerance!r} is not "
                    f"in tolerance.yaml"
                )
    rows: list[tuple[Path, Row]] = []
    faults: list[str] = []
    for path in sorted([*folder.glob("*.csv"), *folder.glob("site/*.csv")]):
        found, wrong = read_rows(path)
        rows += [(path, row) for row in found]
        faults += wrong
    faults += _faults_between(rows, foms, rules, sources)
    if faults:
        raise Fault("\n".join(faults))
    return References([row for _, row in rows], foms, rules, sources)


@functools.cache
def loaded(folder: Path) -> References:
    """:func:`load`, once for each folder."""
    return load(folder)
