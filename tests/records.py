"""Lines of ``records.jsonl`` as sessions write them, for tests that need a history."""

from __future__ import annotations

import json
from collections.abc import Iterable

from conftest import valid
from plumbline.check import record


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


def plan(session: str, cases: Iterable[str], **fields: object) -> str:
    """The plan of a session of these test cases, by the names that their records have."""
    planned = {"check": "imb_p2p", "system": "hill", "partition": "cpu", "environment": "gnu",
               "tags": [], "nodes": 1, "hours": 0.1}  # fmt: skip
    planned |= {name: fields.pop(name) for name in [*planned] if name in fields}
    found = {"schema": record.SCHEMA, "session": session, "extras": {}, "system": planned["system"],
            "cases": dict.fromkeys(cases, planned)}  # fmt: skip
    return json.dumps(found | fields)


def case(session: str, time: str, **fields: object) -> dict:
    """A test case that passed, as its record has it; it is validated.

    :arg time: its end, UTC.
    """
    return valid(json.loads(record.dumps(record.create(unvalidated(session, time, **fields)))))


def dumps(fields: dict) -> str:
    """A record as one line, whatever is in it."""
    return json.dumps(fields, separators=(",", ":"))


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
