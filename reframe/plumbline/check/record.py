"""Records, which sessions write and the rest of Plumbline reads.

A record is a JSON line for each finished test case (``schema: 5``). The types here are its schema.
Nothing is converted: a number in quotes or 8.7 bytes is refused. Older records are migrated: schema
1 had one figure for each metric and size, schema 2 had neither waivers nor a warning band, schema 3
had no warnings, and schema 4 had other names for two fields of a figure.
``docs/record.schema.json`` is this schema for other programs; ``python -m plumbline.check.record``
prints it. :mod:`plumbline.check.session_files` has the other files of a session.
"""

from __future__ import annotations

import datetime
import json
import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from plumbline.core import files, paths
from plumbline.core.errors import Fault, UnreadableFile, with_code
from plumbline.core.text import pluralize, printable, shorten
from plumbline.parse import Figure
from plumbline.reference import tables

SCHEMA = 5

#: The extra of a record that has its side in a duet. The session has both sides in ``duet-a`` and
#: ``duet-b``.
DUET = "duet"
SIDES = ("a", "b")
#: Results of a test case, in the order of a summary; and those with measurements.
Result = Literal["pass", "fail", "waived", "invalid", "error", "skip", "aborted", "unfinished"]
RESULTS = get_args(Result)
MEASURED = ("pass", "fail", "waived")
#: Verdicts of a figure that is outside its bounds; and those, waived or not.
FAILED = ("fail", "above-ceiling")
OUTSIDE = (*FAILED, "waived")


class Damaged(ValueError):
    """A line is not a record, or a file not a plan; the text has the field and the reason."""


# -- the schema ----------------------------------------------------------------------------------


def _check_date(text: str) -> str:
    # Raises ValueError on the 45th of a month.
    datetime.datetime.fromisoformat(text[:19])
    return text


def _about(text: str) -> Any:
    return Field(description=text)


#: Text without NUL, which neither databases nor XML accept.
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
#: Text that becomes part of the name of a series, a file or a page.
Name = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=4096)]
Texts = dict[Name, Text]
Count = Annotated[int, Field(ge=0, lt=2**31)]
#: A reason code. In older records it may be a single word.
Code = Annotated[Name, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
Time = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"),
    AfterValidator(_check_date),
]

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, cache_strings="keys")


class _Model(BaseModel):
    model_config = STRICT


class Summary(_Model):
    """Distribution of a figure's samples; ``std`` is 0 if there is only one."""

    min: float
    median: float
    mean: float
    max: float
    std: float

    @classmethod
    def of(cls, samples: list[float]) -> Summary:
        """Return the distribution of at least one sample."""
        return cls(
            min=min(samples),
            median=statistics.median(samples),
            mean=statistics.fmean(samples),
            max=max(samples),
            std=statistics.stdev(samples) if len(samples) > 1 else 0.0,
        )


class FigureRecord(_Model):
    """A figure of merit and the bounds that it was compared with."""

    metric: Name
    size: Annotated[Annotated[int, Field(ge=0, lt=2**63)] | None, _about("bytes")]
    location: Annotated[
        Name, _about("place within the test case, such as gpu0-gpu1; empty if there is one place")
    ]
    placement: Annotated[Name, _about("placement in the references")]
    value: float
    unit: Name
    samples: Annotated[list[float], Field(min_length=1)]
    summary: Summary
    statistic: Name
    better: Literal["higher", "lower", "neither"]
    verdict: Literal["pass", "fail", "above-ceiling", "not-asserted", "waived"]
    near_bound: Annotated[bool, _about("whether it passed, but is within the warning band")]
    waiver: Annotated[Name | None, _about("id of the waiver that covers it")]
    reason: Annotated[Text, _about("why an existing row asserts nothing; or empty")]
    lower: Annotated[float | None, _about("null if there is no lower bound")]
    upper: Annotated[float | None, _about("null if there is no upper bound")]
    reference: Annotated[Name | None, _about("id of the row that decides")]
    others: list[Name]
    ceiling: float | None
    headline: bool
    tolerance: Annotated[
        Name | None,
        _about("class of its tolerance; null if neither a register nor its check has it"),
    ] = None
    across: Annotated[
        Count | None,
        _about(
            "of a pair of nodes: how many pairs, this one included, used the uplink of a rack at "
            "the same time; 0 within a rack; null if the racks are not known"
        ),
    ] = None

    @property
    def figure(self) -> Figure:
        """The identity of the figure."""
        return Figure(self.metric, self.size, self.location)


class TaskRecord(_Model, extra="allow"):
    """Node, CPUs and GPUs on which a task ran."""

    rank: Count
    host: Name
    cpus: Text
    given: Annotated[Text, _about("names of the GPUs from the launcher; empty without any")]
    gpus: Annotated[Text, _about("names of the GPUs in the program's environment")]
    local: Annotated[
        Annotated[int, Field(ge=-1)] | None,
        _about("rank among the tasks of its node, as the program gets it; -1 if unknown"),
    ] = None
    devices: Annotated[
        Text | None,
        _about(
            "PCI bus ids of the program's GPUs, in its order; empty if the node does not show them"
        ),
    ] = None


class InterfaceRecord(_Model, extra="allow"):
    """What a network interface moved while the program ran."""

    received: Annotated[int, _about("bytes")]
    sent: Annotated[int, _about("bytes")]
    errors: int
    drops: int
    idle: Annotated[float, _about("bytes per second before the runs, in the busier direction")]


class DeviceRecord(_Model, extra="allow"):
    """A GPU during all runs, with the fields that its readings had."""

    throttled: Annotated[
        list[Name] | None,
        _about("reasons for a lower clock, such as hw-thermal; missing if it does not report them"),
    ] = None
    temperature: Annotated[float, _about("the highest, in degrees Celsius")] = 0
    clock: Annotated[float, _about("the highest, in MHz")] = 0
    memory_clock: Annotated[float, _about("the highest, in MHz")] = 0
    link: Annotated[Text, _about("PCIe link while it worked, such as gen 4 x16")] = ""
    max_link: Annotated[Text, _about("what the link can be")] = ""
    corrected: Annotated[int, _about("ECC errors during the runs that were corrected")] = 0
    uncorrected: Annotated[int, _about("ECC errors during the runs that were not")] = 0
    faults: Annotated[list[Name] | None, _about("why it needs a repair; missing if unknown")] = None


class ProcessorsRecord(_Model, extra="allow"):
    """The CPUs of a node during all runs, with the fields that its readings had."""

    cores: Annotated[
        int | None,
        _about("times that cores were throttled, being too hot; missing if they are not counted"),
    ] = None
    packages: Annotated[int | None, _about("times that packages were throttled; likewise")] = None
    clock: Annotated[
        float | None, _about("MHz of the first task's CPU, the lowest at the end of a run")
    ] = None


class NoticeRecord(_Model):
    """A warning state. It does not change the result, but fails under strict rules."""

    state: Literal["suspicious", "unstable", "warnings"]
    code: Annotated[Code, _about("stable id")]
    figure: Annotated[Name, _about("name of the figure that it is about; or empty")]
    detail: Text
    source: Annotated[Text, _about("id of the reference, or source of the pattern")]


class Seconds(_Model, extra="allow"):
    """Durations in seconds.

    ``total`` is from set-up to verdict, without waiting in a queue or for other cases. ``samples``
    are those of the program's runs, warm-ups first.
    """

    total: float | None = None
    samples: list[float] = []


class Record(_Model):
    """One finished test case."""

    # pydantic's models have a `schema` of their own.
    schema_version: Annotated[Literal[5], Field(alias="schema")]
    session: Annotated[Name, Field(min_length=1)]
    time: Annotated[Time, _about("end of the case, UTC")]
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
    conditions: Texts
    tags: list[Name]
    nodes: list[Name]
    jobid: Name | None = None
    samples: Annotated[Count, Field(ge=1)] | None
    warmups: Count | None
    build: Texts
    extras: Texts
    hosts: Annotated[
        dict[Name, Texts],
        _about("facts of each node: kernel, firmware, driver, governor, memory ..."),
    ]
    variables: Annotated[
        Texts | None,
        _about(
            "variables with which the program's environment tunes MPI, fabrics, OpenMP, memory "
            "and GPUs; missing if no task reported them"
        ),
    ] = None
    network: Annotated[
        dict[Name, dict[Name, InterfaceRecord]],
        _about("what the network interfaces of each node moved; of cases with several nodes"),
    ] = {}
    devices: Annotated[
        dict[Name, dict[Name, DeviceRecord]],
        _about("state of the GPUs of each node during the runs, by PCI bus id"),
    ] = {}
    processors: Annotated[
        dict[Name, ProcessorsRecord], _about("state of the CPUs of each node during the runs")
    ] = {}
    tasks: list[TaskRecord]
    topology: Annotated[
        Literal["confirmed", "unconfirmed"] | None,
        _about(
            "whether every node showed the packages, cores, NUMA domains and GPUs of the system "
            "file; a difference makes the case invalid"
        ),
    ] = None
    result: Result
    phase: Annotated[Name | None, _about("ReFrame's phase in which it ended early")]
    reason: Text | None
    code: Annotated[Name | None, _about("stable id of the reason, if it has one")] = None
    waiver: Annotated[Name | None, _about("id of the first waiver that covers it")]
    warnings: list[NoticeRecord]
    output: Annotated[Text | None, _about("folder of its files within the session's folder")] = None
    seconds: Seconds
    foms: list[FigureRecord]

    @property
    def name(self) -> str:
        """The name of the test case in ReFrame's listing, without the hash."""
        return case_name(self.check, self.system, self.partition, self.environment)

    @property
    def plain(self) -> bool:
        """Whether it is of a plain ReFrame check, which has no placement."""
        return self.placement is None

    @property
    def why(self) -> str:
        """Why the test case did not pass, with the reason code; empty if it passed."""
        # That of an invalid case begins with its result, for what ReFrame prints.
        return with_code((self.reason or "").removeprefix(f"{self.result}: "), self.code)

    @property
    def busy(self) -> bool:
        """Whether other processes used its cores, so that no figure was compared."""
        return self.conditions.get("busy") == "yes"

    def place_of(self, notice: NoticeRecord) -> str:
        """Return the nodes of a warning as its line has them; empty if its message has its own."""
        named = notice.detail.partition(": ")[0] in self.nodes
        return "" if named or not self.nodes else f" on {shorten(self.nodes, most=4)}"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a record."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | Record.model_json_schema()


def reason_of(err: ValidationError) -> str:
    """Return the first fault with its field, and the number of further faults."""
    first, *more = err.errors(include_url=False, include_context=False)
    rest = f" (and {pluralize(len(more), 'more fault')})" if more else ""
    return f"{_field(first)}{_message(first)}{rest}"


def _field(error: ErrorDetails) -> str:
    """Return the field with the fault, such as ``foms[0].size: ``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"])
    field = printable("".join(steps).removeprefix("."))[:200]
    return f"{field}: " if field else ""


def _message(error: ErrorDetails) -> str:
    value = error["input"]
    found = f", not {printable(repr(value)[:80])}" if _is_simple(value) else ""
    missing = error["type"] in ("missing", "json_invalid")
    return error["msg"] + ("" if missing else found)


def _is_simple(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


# -- reading -------------------------------------------------------------------------------------


def parse(line: bytes) -> Record:
    """Parse a line, also of an older schema.

    :raises Damaged: if it is not a record.
    """
    try:
        return Record.model_validate_json(line)
    except ValidationError as err:
        error = err
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise Damaged(f"not a complete record: {reason_of(error)}") from None
    if not isinstance(fields, dict) or "schema" not in fields:
        raise Damaged("not a record of Plumbline, but perhaps of another tool or of ReFrame")
    if type(fields["schema"]) is not int:
        raise Damaged(reason_of(error))
    if fields["schema"] > SCHEMA:
        raise Damaged(f"schema {fields['schema']} is of a newer Plumbline: update this one")
    return validate(migrate(fields))


def validate(fields: object) -> Record:
    """Return a record of the current schema.

    :raises Damaged: if the fields do not conform to it.
    """
    try:
        return Record.model_validate(fields)
    except ValidationError as err:
        raise Damaged(reason_of(err)) from None


def read(path: Path, bad: Callable[[str], None] | None = None) -> Iterator[Record]:
    """Yield the records of a file, in the order in which they were written.

    :arg bad: is called with a message for each line that is not a record: file, line and reason.
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
        raise UnreadableFile(f"{path}: cannot be read: {err.strerror or err}") from None


def migrate(fields: dict) -> dict:
    """Return the fields of an older record in the current schema, and any others unchanged."""
    migrations = {1: _to_schema_2, 2: _to_schema_3, 3: _to_schema_4, 4: _to_schema_5}
    try:
        while (migration := migrations.get(fields["schema"])) is not None:
            fields = migration(fields)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        # It is not a record. Its validation gives the reason.
        pass
    return fields


def _to_schema_2(fields: dict) -> dict:
    """Add GPUs, and the location of figures."""
    tasks = [task | {"given": "", "gpus": ""} for task in fields["tasks"]]
    added = {"at": "", "placement": fields["placement"] or "", "reason": ""}
    foms = [
        fom | added | {"summary": Summary.of(fom["samples"]).model_dump()} for fom in fields["foms"]
    ]
    return fields | {"schema": 2, "tasks": tasks, "foms": foms}


def _to_schema_3(fields: dict) -> dict:
    """Add waivers, the warning band, and which direction is better."""
    directions = tables.directions(paths.reference()) if fields["foms"] else {}
    foms = [
        fom
        | {
            "better": directions.get((fields["benchmark"], fom["metric"]), "neither"),
            "near": False,
            "waiver": None,
        }
        for fom in fields["foms"]
    ]
    return fields | {"schema": 3, "waiver": None, "foms": foms}


def _to_schema_4(fields: dict) -> dict:
    """Add the list of warnings."""
    return fields | {"schema": 4, "warnings": []}


def _to_schema_5(fields: dict) -> dict:
    """Rename two fields of a figure."""
    names = {"at": "location", "near": "near_bound"}
    foms = [{names.get(name, name): value for name, value in fom.items()} for fom in fields["foms"]]
    return fields | {"schema": 5, "foms": foms}


# -- writing -------------------------------------------------------------------------------------


def create(fields: dict[str, Any]) -> Record:
    """Return a record of fields that may contain infinite bounds and any text.

    An infinite bound becomes ``None``. NUL, and bytes that are not UTF-8, are escaped.

    :raises Damaged: if the fields do not conform to the schema.
    """
    return validate(_storable(fields))


def dumps(record: Record) -> str:
    """Return a record as one line of JSON, with only the fields that were set."""
    return record.model_dump_json(by_alias=True, exclude_unset=True)


def _storable(value: object) -> object:
    # The texts of thousands of nodes come first, and nearly all are whole.
    if isinstance(value, str):
        if value.isprintable():
            return value
        return value.replace("\0", r"\x00").encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_storable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_storable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- names ---------------------------------------------------------------------------------------


def short_name(case: Any) -> str:
    """Return the name of a test case, or of a row of one, where the system goes without saying."""
    return f"{case.check} @{case.partition}+{case.environment}"


def case_name(check: str, system: str, partition: str, environment: str) -> str:
    """Return the name of a test case in ReFrame's listing, without the hash."""
    return f"{check} @{system}:{partition}+{environment}"


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
