"""Lines of ``records.jsonl``: those of a session, and some as sessions write them, and series, for
tests that need a history."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path

import jsonschema
import numpy as np
from plumbline.check import record
from plumbline.history.series import Key, Series

SCHEMA = Path(__file__).resolve().parents[1] / "docs" / "record.schema.json"


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def records_of(session: Path, name: str = "records.jsonl") -> list[dict]:
    """Return the records in a session's folder, which must be complete and valid lines."""
    path = session / name
    if not path.exists():
        return []
    text = path.read_text()
    assert not text or text.endswith("\n"), f"{path} ends within a line"
    return [json.loads(_conforming(line)) for line in text.splitlines()]


@functools.cache
def _conforming(line: str) -> str:
    """Return the line of a record, looked at once however often a test asks for the record."""
    valid(json.loads(line))
    return line


def valid(fields: dict) -> dict:
    """Return a record that conforms to the schema."""
    _validator().validate(fields)
    return fields


def figure(value: float, **fields: object) -> dict:
    """A figure of merit as a record has it."""
    return {
        "metric": "bandwidth",
        "size": None,
        "location": "",
        "placement": "all-cores",
        "value": value,
        "unit": "MB/s",
        "samples": [value],
        "summary": {"min": value, "median": value, "mean": value, "max": value, "std": 0.0},
        "statistic": "median",
        "better": "higher",
        "verdict": "not-asserted",
        "near_bound": False,
        "waiver": None,
        "reason": "",
        "lower": None,
        "upper": None,
        "reference": None,
        "others": [],
        "ceiling": None,
        "headline": True,
        **fields,
    }


def series(key: Key, values: Iterable[float], **fields: object) -> Series:
    """A series of the history, of one value a night from 2026-01-01 on."""
    found = np.array([*values], float)
    count, nothing = len(found), np.full(len(found), np.nan)
    days = np.arange(count) * np.timedelta64(1, "D")
    known = {
        "benchmark": "babelstream", "unit": "GB/s", "better": "higher",
        "sessions": np.array([f"s{n}" for n in range(count)]),
        "times": np.datetime64("2026-01-01T02:00:00", "s") + days, "values": found,
        "lower": nothing, "upper": nothing, "ceiling": nothing,
        "verdicts": np.full(count, "pass"), "references": np.full(count, ""),
        "builds": np.full(count, "b"), "nodes": np.full(count, "n1,n2"),
        "samples": [[value] for value in found.tolist()],
    }  # fmt: skip
    return Series(key, **(known | fields))


def plan(session: str, cases: Iterable[str], **fields: object) -> str:
    """The plan of a session of these test cases, by the names that their records have.

    :arg fields: of the plan and of each test case; its check is by default that of its name.
    """
    planned = {"system": "hill", "partition": "cpu", "environment": "gnu",
               "tags": [], "nodes": 1, "hours": 0.1}  # fmt: skip
    planned |= {name: fields.pop(name) for name in ["check", *planned] if name in fields}
    listed = {name: {"check": name.partition(" @")[0], **planned} for name in cases}
    found = {"schema": record.SCHEMA, "session": session, "extras": {}, "system": planned["system"],
            "cases": listed}  # fmt: skip
    return json.dumps(found | fields)


def case(session: str, time: str, **fields: object) -> dict:
    """A test case that passed, as its record has it; it is validated.

    :arg time: its end, UTC.
    """
    return stored(unvalidated(session, time, **fields))


def stored(fields: dict) -> dict:
    """A record of fields as Plumbline stores it; it is validated."""
    return json.loads(record.dumps(record.create(fields)))


def dumps(fields: dict) -> str:
    """A record as one line, whatever is in it."""
    return json.dumps(fields, separators=(",", ":"))


def write(results: Path, lines: Iterable[dict], planned: str = "", ended: bool = False) -> None:
    """Add records to the folder of their session.

    :arg planned: its plan. :arg ended: whether it has an end.
    """
    listed = [*lines]
    folder = results / "sessions" / listed[0]["session"]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "records.jsonl").open("a") as file:
        file.writelines(f"{dumps(line)}\n" for line in listed)
    if planned:
        (folder / "plan.json").write_text(planned)
    if ended:
        (folder / "end.json").write_text('{"code": 0, "notes": [], "faults": []}')


def unvalidated(session: str, time: str, **fields: object) -> dict:
    """The same without validation, so that any field can be set."""
    values = {
        "schema": record.SCHEMA,
        "session": session,
        "time": time,
        "system": "hill",
        "partition": "cpu",
        "environment": "gnu",
        "check": "imb_p2p",
        "attempt": 0,
        "benchmark": "imb",
        "program": "IMB-MPI1",
        "version": None,
        "placement": "all-cores",
        "conditions": {},
        "tags": [],
        "nodes": ["n1"],
        "jobid": None,
        "samples": 1,
        "warmups": 0,
        "build": {},
        "extras": {},
        "hosts": {},
        "tasks": [],
        "result": "pass",
        "phase": None,
        "reason": None,
        "waiver": None,
        "warnings": [],
        "output": None,
        "seconds": {"total": 1.0, "samples": []},
        "foms": [],
        **fields,
    }
    name = "{check} @{system}:{partition}+{environment}".format(**values)
    return {"case": name, **values}
