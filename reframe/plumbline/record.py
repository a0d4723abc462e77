"""Records: one JSON line per finished test case, the truth that everything later reads.

The line's fields are described by ``record.schema.json`` (``schema: 4``). Older lines are read as
what they stand for now: schema 1 had one figure of each metric and size, schema 2 knew neither
waivers nor a warning band, schema 3 no warnings.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import jsonschema

from plumbline import files, paths, table
from plumbline.errors import Fault

SCHEMA = 4


class RecordError(Exception):
    """A record could not be written whole."""


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    """The validator of a record."""
    schema = json.loads(Path(__file__).with_name("record.schema.json").read_text())
    return jsonschema.Draft202012Validator(schema)


def dumps(fields: dict) -> str:
    """A record as one line; infinite bounds are open, that is ``null``."""
    return json.dumps(_finite(fields), allow_nan=False, separators=(",", ":"), default=str)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def append(path: Path, line: str) -> None:
    """Appends a line, whole or not at all, and waits until the disk has it.

    :raises RecordError: if it cannot; a part that was written is taken back.
    """
    data = f"{line}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = files.opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
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


def read(path: Path) -> Iterator[dict]:
    """The records of a file, in the order they were written.

    :raises Fault: on a line that is no record; the text names file and line.
    """
    try:
        with open(path, encoding="utf-8", opener=files.opened) as file:
            for number, line in enumerate(file, 1):
                try:
                    fields = json.loads(line)
                except ValueError as err:
                    raise Fault(f"{path}:{number}: no whole record: {err}") from None
                fields = renewed(fields)
                fault = next(validator().iter_errors(fields), None)
                if fault:
                    raise Fault(f"{path}:{number}: {fault.json_path}: {fault.message}")
                yield fields
    except (OSError, UnicodeDecodeError) as err:
        raise Fault(f"{path}: cannot be read: {err}") from None


def summary(samples: list[float]) -> dict[str, float]:
    """A figure's distribution over its samples."""
    return {
        "min": min(samples),
        "median": statistics.median(samples),
        "mean": statistics.fmean(samples),
        "max": max(samples),
        "std": statistics.stdev(samples) if len(samples) > 1 else 0.0,
    }


def renewed(fields: object) -> object:
    """A record of an older schema with what newer ones added; any other as it is."""
    renewals = {1: _with_several, 2: _with_waivers, 3: _with_warnings}
    try:
        while (renew := renewals.get(fields["schema"])) is not None:
            fields = renew(fields)
    except (KeyError, TypeError, ValueError, AttributeError):
        # No record: whoever validates it says why.
        pass
    return fields


def _with_several(fields: dict) -> dict:
    """Schema 1 as 2: several figures of a metric and size, GPUs."""
    tasks = [task | {"given": "", "gpus": ""} for task in fields["tasks"]]
    more = {"at": "", "placement": fields["placement"] or "", "reason": ""}
    foms = [fom | more | {"summary": summary(fom["samples"])} for fom in fields["foms"]]
    return fields | {"schema": 2, "tasks": tasks, "foms": foms}


def _with_waivers(fields: dict) -> dict:
    """Schema 2 as 3: waivers, the warning band, and which direction is better."""
    known = table.directions(paths.reference()) if fields["foms"] else {}
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


def plain(check: str) -> str:
    """A check's name without what ReFrame adds for ``--distribute`` and ``--repeat``, such as
    ``%.nid=node1``."""
    return re.sub(r" %\.\S+", "", check)


def case_name(check: str, fields: dict) -> str:
    """A test case as ReFrame lists it, without the hash."""
    return f"{check} @{fields['system']}:{fields['partition']}+{fields['environment']}"


def busy(fields: dict) -> bool:
    """Whether other processes ran on the case's cores, so that nothing of it was compared."""
    return fields["conditions"].get("busy") == "yes"


def store(path: Path, text: str) -> None:
    """Writes a file whole, or leaves it as it was.

    :raises OSError: if it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        # Made anew, so that nothing is written where a link of somebody else's leads.
        partial.unlink(missing_ok=True)
        with partial.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sessions(results: Path) -> list[Path]:
    """The folders of all sessions, oldest first."""
    return sorted(path.parent for path in results.glob("sessions/*/plan.json"))
