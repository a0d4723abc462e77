"""The `plumbline` command: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest
from conftest import ROOT, STANDINS, Testbed, refused

OUTPUTS = STANDINS / "outputs"


# -- parse ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("benchmark", "key", "tasks", "fom"),
    [
        ("imb", "PingPong", 2, ("pingpong_latency", 1.04, "us", 8)),
        ("imb", "Barrier", 2, ("barrier_latency", 0.30, "us", None)),
        ("hpcc", "hpcc", 2, ("hpl", 0.0240488, "Tflop/s", None)),
        ("fio", "write", None, ("write_bandwidth", 1973790117.0, "B/s", None)),
    ],
)
def test_parse_prints_what_the_harness_reads(
    testbed: Testbed, benchmark: str, key: str, tasks: int | None, fom: tuple
):
    done = testbed.plumbline("parse", benchmark, OUTPUTS / f"{key}.out")
    assert (done.code, done.err) == (0, "")
    read = json.loads(done.out)
    assert read["tasks"] == tasks
    keys = ("metric", "value", "unit", "size")
    assert {**dict(zip(keys, fom, strict=True)), "location": ""} in read["foms"]


def test_parse_of_an_output_that_cannot_be_trusted(testbed: Testbed):
    path = testbed.folder / "half.out"
    path.write_text((OUTPUTS / "PingPong.out").read_text()[:1500])
    done = testbed.plumbline("parse", "imb", path)
    assert (done.code, done.out) == (1, "")
    assert f"plumbline: {path}: invalid: " in done.err
    assert len(done.err.splitlines()) == 1


def test_parse_of_what_is_not_there(testbed: Testbed):
    missing = testbed.folder / "missing.out"
    done = testbed.plumbline("parse", "imb", missing)
    assert (done.code, done.out) == (2, "")
    assert str(missing) in done.err and "Traceback" not in done.err
    done = testbed.plumbline("parse", "imb", testbed.folder)
    assert done.code == 2 and "Traceback" not in done.err
    done = testbed.plumbline("parse", "linpack", OUTPUTS / "hpcc.out")
    assert (done.code, done.out) == (2, "")
    assert "no parser for 'linpack'; available: babelstream, commscope" in done.err
    done = testbed.plumbline("parse", "gpcent", OUTPUTS / "hpcc.out")
    assert done.code == 2 and "no parser for 'gpcent'; did you mean gpcnet" in done.err


def test_an_unknown_command_or_option(testbed: Testbed):
    assert testbed.plumbline("nosuch").code == 2
    assert testbed.plumbline("doctor", "--nosuch").code == 2


@pytest.mark.parametrize("unread", [["stdout"], ["stdout", "stderr"]])
def test_a_pipe_that_nobody_reads_is_no_regression(unread: list[str]):
    """As of `plumbline ... | head -1`: 1 would say that something was found."""
    reader, writer = os.pipe()
    os.close(reader)
    program = "from plumbline.cli import main; main(['parse', 'imb', 'PATH'])"
    path = OUTPUTS / ("PingPong.out" if unread == ["stdout"] else "none.out")
    done = subprocess.run(
        [sys.executable, "-c", program.replace("PATH", str(path))],
        **{"stderr": subprocess.PIPE} | dict.fromkeys(unread, writer),
    )
    os.close(writer)
    assert (done.returncode, done.stderr or b"") == (2, b"")


def test_colours_are_for_a_terminal(testbed: Testbed):
    testbed.environment("standin", "imb")
    del testbed.env["RFM_COLORIZE"]
    done = testbed.plumbline("run", "-n", "imb_p2p", "--mode=smoke")
    assert "OK" in done.out and "\x1b" not in done.out


# -- doctor --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def examined(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A machine at hand with one program there, and one that is not."""
    testbed = make_testbed("local")
    testbed.environment("mpich", "imb")
    testbed.environments.append(
        {
            "name": "lacks",
            "features": ["imb"],
            "extras": {"provider": "pip"},
            "target_systems": ["local"],
        }
    )
    testbed.write()
    testbed.env["PLUMBLINE_TOOLS"] = str(testbed.folder / "no-tools")
    return testbed


def test_doctor_tells_what_would_run_and_what_would_not(examined: Testbed):
    done = examined.plumbline("doctor", "--format=json")
    assert done.code == 0, done.output
    found = json.loads(done.out)
    assert found["machine"]["host"] == platform.node()
    assert found["machine"]["kernel"] == platform.release()
    assert str(examined.scratch) in found["machine"]["scratch"]
    assert "on-socket" in found["machine"]["placements"]
    assert found["cut off"] == []
    cases = {case["case"]: case for case in found["cases"]}
    runs = cases["imb_p2p %operation=PingPong %placement=on-socket @local:node+mpich"]
    assert (runs["runs"], runs["figures"], runs["asserted"]) == (True, 47, 0)
    skipped = cases["imb_p2p %operation=PingPong %placement=on-socket @local:node+lacks"]
    assert (skipped["runs"], skipped["result"]) == (False, "skip")
    assert skipped["reason"].endswith("plumbline setup")
    # Nothing was run, and nothing is left behind.
    assert examined.session_folders() == set()


def test_doctor_prints_the_same_as_text(examined: Testbed):
    done = examined.plumbline("doctor")
    assert done.code == 0, done.output
    check = "imb_p2p %operation=PingPong %placement=on-socket @local:node"
    assert f"runs: {check}+mpich: 47 figures, 0 asserted" in done.out
    assert f"skip: {check}+lacks: " in done.out
    assert "18 of 36 test cases would run" in done.out


def test_doctor_suggests_a_build_only_of_what_it_would_bring(examined: Testbed):
    done = examined.plumbline("doctor", "--format=json", PLUMBLINE_SPACK_ENV=ROOT / "spack-env")
    assert done.code == 0, done.output
    programs = json.loads(done.out)["programs"]
    for program in ("omp-stream", "serial-stream", "ior", "osu_latency"):
        assert programs[program].endswith("plumbline build local:openmpi"), programs
    for program in ("cuda-stream", "hip-stream", "sycl-stream"):
        assert (
            programs[program] == f"no: {program} is not on PATH: load its module, or put it on PATH"
        )


def test_doctor_of_a_system_that_is_not_there(testbed: Testbed):
    testbed.environment("disk", "fio")
    refused(testbed.plumbline("doctor", "--system=testbad"), "no such system; did you mean testbed")


# -- lint ----------------------------------------------------------------------------------------


def test_lint_of_what_is_as_it_should_be(testbed: Testbed):
    testbed.environment("disk", "fio")
    inventory = testbed.systems / "inventory" / "testbed.json"
    first = testbed.plumbline("lint")
    assert first.code == 0, first.output
    assert "0 faults" in first.out and str(inventory) in first.out
    before = inventory.read_text()
    again = testbed.plumbline("lint")
    assert again.code == 0 and inventory.read_text() == before


def test_lint_names_every_fault(testbed: Testbed):
    testbed.environment("disk", "fio")
    (testbed.systems / "other.yaml").write_text("systems: [\n")
    table = testbed.refer(
        {"id": "r1", "benchmark": "fio", "metric": "read_bandwidth", "value": 1, "unit": "us"},
        {"id": "r2", "benchmark": "fio", "metric": "no_bandwidth", "value": 1, "unit": "MB/s"},
    )
    done = testbed.plumbline("lint")
    assert done.code == 1
    for part in (
        f"{testbed.systems / 'other.yaml'}:2:1",
        f"{table}:2",
        f"{table}:3",
        "no_bandwidth",
    ):
        assert part in done.err
    assert "Traceback" not in done.output
    assert not (testbed.systems / "inventory").exists()


def test_lint_of_a_case_that_is_new_or_gone(testbed: Testbed):
    testbed.environment("disk", "fio")
    assert testbed.plumbline("lint").code == 0
    testbed.environment("more", "fio")
    added = testbed.plumbline("lint")
    assert added.code == 1
    assert added.err.count("+more-io") == 2 and "--accept" in added.err
    assert testbed.plumbline("lint", "--accept").code == 0
    testbed.environments.pop()
    testbed.write()
    gone = testbed.plumbline("lint")
    assert gone.code == 1 and "no longer found" in gone.err


def test_an_inventory_that_is_none(testbed: Testbed):
    testbed.environment("disk", "fio")
    path = testbed.systems / "inventory" / "testbed.json"
    path.parent.mkdir()
    path.write_text('{"case": "many"}')
    lint = testbed.plumbline("lint")
    assert lint.code == 1
    assert str(path) in lint.err and "--accept" in lint.err
    run = testbed.plumbline("run", "-n", "fio.*read", "-S", "fio.size=8", "-S", "num_samples=1")
    assert run.code == 2 and "Traceback" not in run.output
    assert str(path) in run.err and "--accept" in run.err
