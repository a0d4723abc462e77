"""A results folder with sessions for `plumbline compare`, and what it prints."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Done, asked
from records import case, figure, plan, write

NOISE = 0.002
#: The five days before the change.
FIRST = "2026-11-01..2026-11-05"
HOSTS = {"kernel": "5.14", "governor": "performance"}
BUILD = {"path": "/opt/imb", "mpi": "mpich 4.2"}


def fom(value: float, **fields: object) -> dict:
    """A figure of merit as a record has it."""
    return figure(value, **{"placement": "on-node", **fields})


def wild(day: int) -> float:
    """A figure so noisy that nothing can be said of it."""
    return 130.0 if day % 2 else 70.0


def unwrapped(text: str) -> str:
    """A text with each message in one line."""
    return text.replace("\n  ", " ")


class Lab:
    """A results folder with sessions of one night each."""

    def __init__(self, results: Path):
        self.results = results
        self.chance = np.random.default_rng(20261101)

    def noisy(self, level: float, noise: float = NOISE) -> float:
        return float(level * np.exp(self.chance.normal(0, noise)))

    def session(self, day: int, *cases: dict, **extras: str) -> str:
        """Writes the session of a day of November; each case is what its record says."""
        start = datetime.datetime(2026, 10, 31, 2) + datetime.timedelta(days=day)
        name = f"{start:%Y%m%dT%H%M%SZ}-{day + 500:06x}"
        defaults = {"placement": "on-node", "build": BUILD, "extras": extras,
                    "hosts": {"n1": HOSTS}}  # fmt: skip
        lines = []
        for minute, fields in enumerate(cases, 1):
            end = start + datetime.timedelta(minutes=minute)
            lines.append(case(name, f"{end:%Y-%m-%dT%H:%M:%SZ}", **{**defaults, **fields}))
        write(self.results, lines, plan(name, [], extras=extras))
        return name

    def nights(
        self,
        days: range,
        level: float | Callable[[int], float],
        noise: float = NOISE,
        **more: object,
    ) -> None:
        """A session each day, with one figure about a level, which may depend on the day."""
        for day in days:
            value = level(day) if callable(level) else level
            self.session(day, {"foms": [fom(self.noisy(value, noise), **more)]})

    def plumbline(self, *arguments: str) -> Done:
        return asked(*arguments, PLUMBLINE_RESULTS=self.results)

    def compare(
        self, *arguments: str, before: str = "..2026-11-05", after: str = "2026-11-06.."
    ) -> Done:
        return self.plumbline("compare", before, after, *arguments)

    def json(self, *arguments: str, **sides: str) -> dict:
        """The comparison as JSON, whose exit code is the command's."""
        done = self.compare("--format=json", *arguments, **sides)
        found = json.loads(done.out)
        assert done.code == found["exit_code"], done.output
        return found

    def figure(self, *arguments: str, **sides: str) -> dict:
        """The one figure of a comparison."""
        (found,) = self.json(*arguments, **sides)["figures"]
        return found


def rows_of(done: Done) -> list[dict[str, str]]:
    """The rows of a comparison as CSV."""
    return list(csv.DictReader(io.StringIO(done.out)))


@pytest.fixture(name="lab")
def lab_(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "results")
