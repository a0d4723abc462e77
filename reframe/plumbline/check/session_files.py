"""The files in the folder of a session: its plan, its records, its end.

A plan lists the test cases of a session before it starts; an end has its exit code. Both are
strict as :mod:`plumbline.check.record` is.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, with_config
from typing_extensions import NotRequired, TypedDict

from plumbline.check.record import SCHEMA, STRICT, Count, Damaged, Name, Text, Texts, reason_of
from plumbline.core import files


class RecordError(Exception):
    """A record could not be written completely."""


@with_config(STRICT)
class Planned(TypedDict):
    """A planned test case; ``hours`` is its time limit. Nodes and hours are 0 if not known."""

    check: Name
    system: Name
    partition: Name
    environment: Name
    tags: list[Name]
    nodes: Count
    hours: float


@with_config(STRICT)
class Plan(TypedDict):
    """The test cases that a session was going to run."""

    schema: Annotated[int, Field(ge=1, le=SCHEMA)]
    session: Annotated[Name, Field(min_length=1)]
    extras: Texts
    system: Name
    schedulers: NotRequired[list[Name]]
    cases: dict[Name, Planned]


@with_config(STRICT)
class SessionEnd(TypedDict):
    """Exit code, notes and faults of a session that has ended."""

    code: Count
    notes: list[Text]
    faults: list[Text]


def read_plan(folder: Path) -> Plan:
    """Read the plan in a session's folder.

    :raises OSError: if it cannot be read.
    :raises Damaged: if it is not a plan.
    """
    return _read_json(folder / "plan.json", Plan)


def read_end(folder: Path) -> SessionEnd:
    """Read how a session ended, from its folder.

    :raises OSError: if the file cannot be read, or does not exist yet.
    :raises Damaged: if it does not conform to the schema.
    """
    return _read_json(folder / "end.json", SessionEnd)


def write_end(folder: Path, end: SessionEnd) -> None:
    """Write how a session ended, to its folder.

    :raises OSError: if it cannot be written; nothing is left of it then.
    """
    files.write_atomically(folder / "end.json", json.dumps(end, indent=1))


#: Made when it is needed: that takes a while.
_adapter = functools.cache(TypeAdapter)


def _read_json(path: Path, kind: type) -> Any:
    with files.open_binary(path) as file:
        data = file.read()
    try:
        return _adapter(kind).validator.validate_json(data)
    except ValidationError as err:
        raise Damaged(reason_of(err)) from None


def append(path: Path, line: str) -> None:
    """Append a line completely or not at all, and wait until it is on the disk.

    :raises RecordError: if that fails. A part that was written is removed again.
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


def sessions(results: Path) -> list[Path]:
    """Return the folders of all sessions, oldest first."""
    folders = (path.parent for path in results.glob("sessions/*/plan.json"))
    return sorted(folder for folder in folders if not folder.is_symlink())
