"""A results folder with weekly sweeps of some nodes, which is judged and swept again."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Done, asked
from records import case, figure, plan, write

#: Figures of each node: name, level, which way is better.
FIGURES = [("copy", 200.0, "higher"), ("triad", 210.0, "higher"), ("latency", 1.5, "lower")]
#: The units of figures, by which way is better.
UNITS = {"higher": "GB/s", "lower": "us"}


class Fleet:
    """A results folder with weekly sweeps of some nodes.

    :ivar levels: what each node usually has above the others, in logarithms.
    """

    def __init__(self, results: Path, nodes: int = 12, noise: float = 0.005):
        self.results, self.noise = results, noise
        self.chance = np.random.default_rng(20261124)
        self.nodes = [f"n{number:03d}" for number in range(nodes)]
        self.levels = dict(zip(self.nodes, self.chance.normal(0, 0.01, nodes), strict=True))
        self.start = datetime.datetime(2026, 9, 1, 22)

    def measure(self, day: float, node: str, loss: float = 0.0, repeats: int = 1, **more) -> str:
        """Writes a session of one node, all of whose figures lost so much."""
        began = self.start + datetime.timedelta(days=day)
        session = f"{began:%Y%m%dT%H%M%SZ}-{int(node[1:]):06x}"
        extras = {"sweep": f"{began:%Y%m%d}", "node": node}
        about = {"system": "big", "environment": "gcc", "check": "stream"}
        names = [f"stream %.repeat_no={number} @big:cpu+gcc" for number in range(repeats)]
        lines = []
        for number, name_of_case in enumerate(names):
            foms = self.figures(node, loss)
            end = began + datetime.timedelta(minutes=number + 1)
            fields = {**about, "check": name_of_case.partition(" @")[0], "case": name_of_case,
                      "nodes": [node], "foms": foms, "extras": extras, **more}  # fmt: skip
            lines.append(case(session, f"{end:%Y-%m-%dT%H:%M:%SZ}", **fields))
        write(self.results, lines, plan(session, names, extras=extras, **about), ended=True)
        return session

    def figures(self, node: str, loss: float = 0.0) -> list[dict]:
        foms = []
        for name, level, better in FIGURES:
            sign = 1 if better == "higher" else -1
            log = self.levels[node] + self.chance.normal(0, self.noise) + np.log1p(-loss)
            value = float(level * np.exp(sign * log))
            foms.append(figure(value, metric=name, better=better, unit=UNITS[better]))
        return foms

    def distribute(self, day: float, *lost: str, damaged: bool = False) -> str:
        """Writes a session of two checks on all nodes, with ``--distribute``.

        :arg lost: nodes and checks without a record. :arg damaged: whether there is half of one.
        """
        began = self.start + datetime.timedelta(days=day)
        session, end = f"{began:%Y%m%dT%H%M%SZ}-ffffff", f"{began:%Y-%m-%dT%H:%M:%SZ}"
        about = {"system": "big", "environment": "gcc"}
        lines = {
            (node, check): case(session, end, **about, check=f"{check} %.nid={node}", nodes=[node],
                                foms=self.figures(node))
            for node in self.nodes
            for check in ("stream", "io")
        }  # fmt: skip
        planned = plan(session, [line["case"] for line in lines.values()], **about)
        kept = [line for of, line in lines.items() if not {*lost} & {*of, " ".join(of)}]
        write(self.results, kept, planned, ended=True)
        if damaged:
            with (self.results / "sessions" / session / "records.jsonl").open("a") as file:
                file.write('{"schema": 3, "ses\n')
        return session

    def add(self, session: str, check: str, **fields: object) -> None:
        """Writes a record of another check to a session."""
        about = {"system": "big", "environment": "gcc", "check": check, **fields}
        write(self.results, [case(session, "2026-10-22T22:30:00Z", **about)])

    def weeks(self, count: int, **slow: tuple[int, float]) -> None:
        """Sweeps of all nodes; of each slow one, the week from which it is, and its loss."""
        for week in range(count):
            for node in self.nodes:
                since, loss = slow.get(node, (count, 0.0))
                self.measure(7 * week, node, loss if week >= since else 0.0)

    def plumbline(self, *words: object, **env: object) -> Done:
        return asked(*words, PLUMBLINE_RESULTS=self.results, **env)

    def clear(self, node: str, *words: object, **env: object) -> tuple[Done, list[dict]]:
        """Judges a node by its last night."""
        done = self.plumbline("clear", node, "--no-measure", "--format=json", *words, **env)
        return done, json.loads(done.out) if done.out.startswith("[") else []


@pytest.fixture(name="fleet")
def fleet_(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path / "results")
