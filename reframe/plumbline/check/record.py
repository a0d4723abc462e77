"""Records and plans: what a session writes, and what everything later reads.

A record is one JSON line per finished test case (``schema: 5``), a plan is what a session meant to
run. The types here are their schema: nothing is converted, so that a number in quotes or 8.7 bytes
is no record. Older lines are read as what they stand for now: schema 1 had one figure of each
metric and size, schema 2 knew neither waivers nor a warning band, schema 3 no warnings.
``docs/record.schema.json`` is this schema as other programs read it; ``python -m
plumbline.check.record`` prints it.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic_core import ErrorDetails
from typing_extensions import NotRequired, TypedDict

from plumbline.core import files, paths
from plumbline.core.errors import Fault, with_code
from plumbline.core.text import pluralize, printable
from plumbline.parse import Figure
from plumbline.reference import tables

SCHEMA = 5


class RecordError(Exception):
    """A record could not be written whole."""


class Damaged(ValueError):
    """A line is no record, or a file no plan; the text says which field, and why."""


# -- the schema ----------------------------------------------------------------------------------


def _moment(text: str) -> str:
    # Raises ValueError on the 45th of a month.
    datetime.datetime.fromisoformat(text[:19])
    return text


def _about(text: str) -> Any:
    return Field(description=text)


#: Neither databases nor XML can hold a NUL.
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
#: What becomes part of the name of a series, a file or a page.
Name = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=4096)]
Words = dict[Name, Text]
Count = Annotated[int, Field(ge=0, lt=2**31)]
#: A reason code; before there were all, single words.
Code = Annotated[Name, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
Moment = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"),
    AfterValidator(_moment),
]

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, cache_strings="keys")
_OPEN = _STRICT | ConfigDict(extra="allow")


class _Model(BaseModel):
    model_config = _STRICT


class Summary(_Model):
    """A figure's distribution over its samples; ``std`` is 0 of a single one."""

    min: float
    median: float
    mean: float
    max: float
    std: float

    @classmethod
    def of(cls, samples: list[float]) -> Summary:
        """The distribution of samples, of which there must be one."""
        return cls(
            min=min(samples),
            median=statistics.median(samples),
            mean=statistics.fmean(samples),
            max=max(samples),
            std=statistics.stdev(samples) if len(samples) > 1 else 0.0,
        )


class FigureRecord(_Model):
    """A figure of merit: what was measured, and what it was compared with."""

    metric: Name
    size: Annotated[Annotated[int, Field(ge=0, lt=2**63)] | None, _about("bytes")]
    location: Annotated[Name, _about("which of several in one case: gpu0-gpu1; or empty")]
    placement: Annotated[Name, _about("that references know it by")]
    value: float
    unit: Name
    samples: Annotated[list[float], Field(min_length=1)]
    summary: Summary
    statistic: Name
    better: Literal["higher", "lower", "neither"]
    verdict: Literal["pass", "fail", "above-ceiling", "not-asserted", "waived"]
    near_bound: Annotated[bool, _about("passed, within the warning band near its bound")]
    waiver: Annotated[Name | None, _about("id of the one that covers it")]
    reason: Annotated[Text, _about("why a row there is asserts nothing; or empty")]
    lower: Annotated[float | None, _about("null where open")]
    upper: Annotated[float | None, _about("null where open")]
    reference: Annotated[Name | None, _about("id of the row that decides")]
    others: list[Name]
    ceiling: float | None
    headline: bool

    @property
    def figure(self) -> Figure:
        """What it is that was measured."""
        return Figure(self.metric, self.size, self.location)


class TaskRecord(_Model):
    """Where a task really ran."""

    model_config = _OPEN
    rank: Count
    host: Name
    cpus: Text
    given: Annotated[Text, _about("GPUs as the launcher named them, empty if it did not")]
    gpus: Annotated[Text, _about("GPUs as the program saw them named")]
    local: Annotated[
        Annotated[int, Field(ge=-1)] | None,
        _about("rank among the tasks of its node, as the program gets it; -1 where unknown"),
    ] = None
    devices: Annotated[
        Text | None,
        _about(
            "PCI bus ids of the GPUs that the program saw, in its order; empty where the node "
            "does not show them"
        ),
    ] = None


class NoticeRecord(_Model):
    """What should be looked at, whatever the result; strict rules fail on it."""

    state: Literal["suspicious", "unstable", "warnings"]
    code: Annotated[Code, _about("stable id")]
    figure: Annotated[Name, _about("name of the figure that it is about; or empty")]
    detail: Text
    source: Annotated[Text, _about("id of the reference, or where the pattern comes from")]


class Seconds(_Model):
    """How long it took. ``total``: from set-up to verdict, without waiting for a turn or in a
    queue; ``samples``: of the program, warm-ups first."""

    model_config = _OPEN
    total: float | None = None
    samples: list[float] = []


class Record(_Model):
    """One finished test case."""

    # pydantic's models have a `schema` of their own.
    schema_version: Annotated[Literal[5], Field(alias="schema")]
    session: Annotated[Name, Field(min_length=1)]
    time: Annotated[Moment, _about("end of the case, UTC")]
    system: Name
    partition: Name
    environment: Name
    check: Annotated[Name, _about("name with parameters, as ReFrame displays it")]
    case: Annotated[Name, _about("ReFrame's hash of the check @system:partition+environment")]
    attempt: Annotated[Count, _about("0 for the first run, then retries")]
    benchmark: Name | None
    program: Name | None
    version: Annotated[Text | None, _about("as the program prints it")] = None
    placement: Name | None
    conditions: Words
    tags: list[Name]
    nodes: list[Name]
    jobid: Name | None = None
    samples: Annotated[Count, Field(ge=1)] | None
    warmups: Count | None
    build: Words
    extras: Words
    hosts: Annotated[
        dict[Name, Words],
        _about("facts of each node: kernel, firmware, driver, governor, memory ..."),
    ]
    tasks: list[TaskRecord]
    topology: Annotated[
        Literal["confirmed", "unconfirmed"] | None,
        _about(
            "whether every node showed that its packages, cores, NUMA domains and GPUs are "
            "those of the system file; a difference is invalid"
        ),
    ] = None
    result: Literal["pass", "fail", "waived", "invalid", "error", "skip", "aborted", "unfinished"]
    phase: Annotated[Name | None, _about("ReFrame's phase in which it ended early")]
    reason: Text | None
    code: Annotated[Name | None, _about("stable id of the reason, where it has one")] = None
    waiver: Annotated[Name | None, _about("id of the one that covers it, or the first of them")]
    warnings: list[NoticeRecord]
    output: Annotated[Text | None, _about("folder of its files, within the session's")] = None
    seconds: Seconds
    foms: list[FigureRecord]

    @property
    def name(self) -> str:
        """The test case as ReFrame lists it, without the hash."""
        return case_name(self.check, self.system, self.partition, self.environment)

    @property
    def plain(self) -> bool:
        """Whether it is of a plain ReFrame check, which has no placement."""
        return self.placement is None

    @property
    def why(self) -> str:
        """Why the test case did not pass, with the code of the reason; empty where it passed."""
        return with_code(self.reason or "", self.code)

    @property
    def busy(self) -> bool:
        """Whether other processes ran on its cores, so that nothing of it was compared."""
        return self.conditions.get("busy") == "yes"


@with_config(_STRICT)
class Planned(TypedDict):
    """A test case that a session meant to run; ``hours``: of the time limit."""

    check: Name
    system: Name
    partition: Name
    environment: Name
    tags: list[Name]
    nodes: Count
    hours: float


@with_config(_STRICT)
class Plan(TypedDict):
    """What a session meant to run."""

    schema: Annotated[int, Field(ge=1, le=SCHEMA)]
    session: Annotated[Name, Field(min_length=1)]
    extras: Words
    system: Name
    schedulers: NotRequired[list[Name]]
    cases: dict[Name, Planned]


@with_config(_STRICT)
class SessionEnd(TypedDict):
    """What the records do not contain of a session that has ended."""

    code: Count
    notes: list[Text]
    faults: list[Text]


@functools.cache
def _plans() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)


@functools.cache
def _ends() -> TypeAdapter[SessionEnd]:
    return TypeAdapter(SessionEnd)


def schema() -> dict[str, Any]:
    """The JSON Schema of a record."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | Record.model_json_schema()


def _why(err: ValidationError) -> str:
    """The first of the reasons why something is not what it should be, and how many more."""
    first, *more = err.errors(include_url=False, include_context=False)
    rest = f" (and {pluralize(len(more), 'more fault')})" if more else ""
    return f"{_place(first)}{_said(first)}{rest}"


def _place(error: ErrorDetails) -> str:
    """The field that is at fault, as ``foms[0].size: ``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"])
    place = printable("".join(steps).removeprefix("."))[:200]
    return f"{place}: " if place else ""


def _said(error: ErrorDetails) -> str:
    given = error["input"]
    instead = f", not {printable(repr(given)[:80])}" if _is_simple(given) else ""
    missing = error["type"] in ("missing", "json_invalid")
    return error["msg"] + ("" if missing else instead)


def _is_simple(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


# -- reading -------------------------------------------------------------------------------------


def parse(line: bytes) -> Record:
    """A line as the record that it is.

    :raises Damaged: if it is none.
    """
    try:
        return Record.model_validate_json(line)
    except ValidationError as err:
        today = err
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise Damaged(f"no whole record: {_why(today)}") from None
    if not isinstance(fields, dict) or "schema" not in fields:
        raise Damaged("no record of Plumbline's: another tool's, or ReFrame's own?")
    if type(fields["schema"]) is not int:
        raise Damaged(_why(today))
    if fields["schema"] > SCHEMA:
        raise Damaged(f"of schema {fields['schema']}: written by a newer Plumbline")
    return checked(renewed(fields))


def checked(fields: object) -> Record:
    """A record, once it is one of today's schema.

    :raises Damaged: if it is none.
    """
    try:
        return Record.model_validate(fields)
    except ValidationError as err:
        raise Damaged(_why(err)) from None


def plan(folder: Path) -> Plan:
    """The plan of a session's folder.

    :raises OSError: if it cannot be read.
    :raises Damaged: if it is none.
    """
    return _whole(folder / "plan.json", _plans())


def end(folder: Path) -> SessionEnd:
    """What a session's folder tells of its end.

    :raises OSError: if it cannot be read, or there was none yet.
    :raises Damaged: if it is none.
    """
    return _whole(folder / "end.json", _ends())


def _whole(path: Path, kind: TypeAdapter) -> Any:
    with files.open_binary(path) as file:
        data = file.read()
    try:
        return kind.validator.validate_json(data)
    except ValidationError as err:
        raise Damaged(_why(err)) from None


def read(path: Path, bad: Callable[[str], None] | None = None) -> Iterator[Record]:
    """The records of a file, in the order they were written.

    :arg bad: gets a message for each line that is not a record: file, line and reason.
    :raises Fault: if the file cannot be read; without ``bad``, also for such a line.
    """
    try:
        with files.open_binary(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield parse(line)
                except Damaged as err:
                    if bad is None:
                        raise Fault(f"{path}:{number}: {err}", code="history.damaged") from None
                    bad(f"{path}:{number}: {err}")
    except OSError as err:
        raise Fault(
            f"{path}: cannot be read: {err.strerror or err}", code="input.unreadable-file"
        ) from None


def renewed(fields: dict) -> dict:
    """A record of an older schema with what newer ones added; any other as it is."""
    renewals = {1: _with_several, 2: _with_waivers, 3: _with_warnings, 4: _with_plain_names}
    try:
        while (renew := renewals.get(fields["schema"])) is not None:
            fields = renew(fields)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        # No record: whoever validates it says why.
        pass
    return fields


def _with_several(fields: dict) -> dict:
    """Schema 1 as 2: several figures of a metric and size, GPUs."""
    tasks = [task | {"given": "", "gpus": ""} for task in fields["tasks"]]
    more = {"at": "", "placement": fields["placement"] or "", "reason": ""}
    foms = [
        fom | more | {"summary": Summary.of(fom["samples"]).model_dump()} for fom in fields["foms"]
    ]
    return fields | {"schema": 2, "tasks": tasks, "foms": foms}


def _with_waivers(fields: dict) -> dict:
    """Schema 2 as 3: waivers, the warning band, and which direction is better."""
    known = tables.directions(paths.reference()) if fields["foms"] else {}
    foms = [
        fom
        | {
            "better": known.get((fields["benchmark"], fom["metric"]), "neither"),
            "near": False,
            "waiver": None,
        }
        for fom in fields["foms"]
    ]
    return fields | {"schema": 3, "waiver": None, "foms": foms}


def _with_warnings(fields: dict) -> dict:
    """Schema 3 as 4: warnings, of which it had none."""
    return fields | {"schema": 4, "warnings": []}


def _with_plain_names(fields: dict) -> dict:
    """Schema 4 as 5: two fields of a figure have other names."""
    names = {"at": "location", "near": "near_bound"}
    foms = [{names.get(name, name): value for name, value in fom.items()} for fom in fields["foms"]]
    return fields | {"schema": 5, "foms": foms}


# -- writing -------------------------------------------------------------------------------------


def made(fields: dict[str, Any]) -> Record:
    """A record of these fields. Infinite bounds are open, that is ``None``; what no reader takes in
    a text, NUL and bytes that are no UTF-8, is spelled out.

    :raises Damaged: if it would be none.
    """
    return checked(_storable(fields))


def dumps(record: Record) -> str:
    """A record as one line, without the fields that it was made without."""
    return record.model_dump_json(by_alias=True, exclude_unset=True)


def _storable(value: object) -> object:
    if isinstance(value, dict):
        return {_storable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_storable(item) for item in value]
    if isinstance(value, str):
        return value.replace("\0", r"\x00").encode(errors="backslashreplace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def append(path: Path, line: str) -> None:
    """Appends a line, whole or not at all, and waits until the disk has it.

    :raises RecordError: if it cannot; a part that was written is taken back.
    """
    data = f"{line}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = files.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            before = os.fstat(file).st_size
            if os.write(file, data) != len(data):
                os.ftruncate(file, before)
                raise RecordError(f"{path}: the disk is full")
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as err:
        raise RecordError(f"{path}: {err.strerror or err}") from None


# -- names ---------------------------------------------------------------------------------------


def case_name(check: str, system: str, partition: str, environment: str) -> str:
    """A test case as ReFrame lists it, without the hash."""
    return f"{check} @{system}:{partition}+{environment}"


def sessions(results: Path) -> list[Path]:
    """The folders of all sessions, oldest first."""
    found = (path.parent for path in results.glob("sessions/*/plan.json"))
    return sorted(folder for folder in found if not folder.is_symlink())


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
