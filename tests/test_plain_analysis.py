"""Plain checks over many nights: screening, trend and report."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import records
from click.testing import CliRunner
from conftest import Testbed
from plumbline.cli import main

#: A healthy value, nights, nodes, and the node that is slow from the last night but one on.
HEALTHY, NIGHTS, NODES, SLOW = 100.0, 6, 24, "n7"


def test_screening_flags_a_slow_node(tmp_path: Path):
    """By a plain check that ReFrame distributed over the nodes."""
    random = np.random.default_rng(1)
    for night in range(1, NIGHTS + 1):
        name = f"202611{night:02}T000000Z-{night:06x}"
        lines = []
        for number in range(1, NODES + 1):
            node = f"n{number}"
            value = HEALTHY * random.normal(1, 0.005)
            if node == SLOW and night >= NIGHTS - 1:
                value *= 0.8
            figure = records.figure(value, metric="rate", unit="GB/s", placement="")
            lines.append(
                records.case(
                    name, f"2026-11-{night:02}T00:{number:02}:00Z", check=f"bare %.nid={node}",
                    benchmark="bare", placement=None, nodes=[node], foms=[figure],
                )
            )  # fmt: skip
        folder = tmp_path / "sessions" / name
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(records.plan(name, [line["case"] for line in lines]))
        (folder / "end.json").write_text(json.dumps({"code": 0, "notes": [], "faults": []}))
        text = "".join(f"{records.dumps(line)}\n" for line in lines)
        (folder / "records.jsonl").write_text(text)
    screened = CliRunner().invoke(main, ["screen", f"--from={tmp_path}", "--format=json"])
    assert screened.exit_code == 1, screened.output
    (flag,) = json.loads(screened.stdout)
    assert (flag["kind"], flag["node"], flag["drain"]) == ("node", SLOW, True)
    assert flag["size"] == pytest.approx(0.2, abs=0.02)


#: As in ReFrame's tutorial, "Run-only tests", with a reference.
TUTORIAL = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class stream_test(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "stream.x"
    reference = {"tutorial:node": {"copy_bw": (23000, -0.10, None, "MB/s")}}

    @sanity_function
    def validate(self):
        return sn.assert_found(r"Solution Validates", self.stdout)

    @performance_function("MB/s")
    def copy_bw(self):
        return sn.extractsingle(r"Copy:\\s+(\\S+)", self.stdout, 1, float)

    @performance_function("MB/s")
    def triad_bw(self):
        return sn.extractsingle(r"Triad:\\s+(\\S+)", self.stdout, 1, float)
"""

STREAM = """#!/bin/sh
echo "Function    Best Rate MB/s  Avg time     Min time     Max time"
echo "Copy:           24939.4     0.021905     0.021527     0.022382"
echo "Triad:          17064.9     0.018867     0.018755     0.019159"
echo "Solution Validates: avg error less than 1.000000e-13 on all three arrays"
"""


def as_of(night: int, session: Path, factor: float) -> None:
    """Store a session once more, as of another night, with its values times a factor."""
    name = f"202611{night:02}T010000Z-{night:06x}"
    folder = session.with_name(name)
    folder.mkdir()
    for path in (session / "plan.json", session / "end.json", session / "records.jsonl"):
        text = path.read_text().replace(session.name, name)
        if path.name == "records.jsonl":
            fields = json.loads(text)
            fields["time"] = f"2026-11-{night:02}T01:05:00Z"
            for fom in fields["foms"]:
                fom["value"] *= factor
                fom["samples"] = [fom["value"]]
                if fom["lower"] and fom["value"] < fom["lower"]:
                    fom["verdict"] = fields["result"] = "fail"
            text = json.dumps(fields) + "\n"
        (folder / path.name).write_text(text)


def test_the_check_of_the_tutorial(make_testbed: Callable[..., Testbed], tmp_path: Path):
    """Its values and verdict are recorded; after 21 nights it has a trend and a report."""
    testbed = make_testbed("tutorial")
    testbed.environment("base", "imb")
    program = testbed.folder / "bin" / "stream.x"
    checks = testbed.folder / "checks" / "stream.py"
    for path, text in ((program, STREAM), (checks, TUTORIAL)):
        path.parent.mkdir()
        path.write_text(text)
    program.chmod(0o755)
    testbed.env["PATH"] = f"{program.parent}:{testbed.env['PATH']}"
    done = testbed.plumbline("run", "-c", checks.parent)
    assert done.code == 0, done.output
    found = {fom["metric"]: (fom["value"], fom["unit"], fom["verdict"], fom["lower"])
             for fom in done.record("stream_test")["foms"]}  # fmt: skip
    assert found == {
        "copy_bw": (24939.4, "MB/s", "pass", 20700.0),
        "triad_bw": (17064.9, "MB/s", "not-asserted", None),
    }
    random = np.random.default_rng(1)
    for night in range(1, 22):
        level = 0.8 if night > 14 else 1.0
        as_of(night, done.session, level * random.normal(1, 0.003))
    shutil.rmtree(done.session)
    trend = testbed.asked("trend", "--format=json")
    assert trend.code == 1, trend.output
    changes = {change["series"].split()[-1]: change for change in json.loads(trend.out)}
    assert changes.keys() == {"copy_bw", "triad_bw"}
    for change in changes.values():
        assert (change["kind"], change["start"]) == ("regression", "2026-11-15")
        assert change["size"] == pytest.approx(-0.2, abs=0.01)
    report = testbed.asked("report", "--out", tmp_path / "report")
    assert report.code == 0, report.output
    start = (tmp_path / "report" / "index.html").read_text()
    assert re.findall(r'<span class="b-(\w+)" style="flex-grow:(\d+)">', start) == [("fail", "1")]
    (page,) = (tmp_path / "report").glob("**/*stream-test*.html")
    for name in ("copy_bw", "triad_bw"):
        assert name in page.read_text()
