"""The `plumbline` command: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BIN, CHECKS, STANDINS, Testbed, asked, codes_in, refused
from halfway import PINGPONG
from plumbline.operate import doctor

OUTPUTS = STANDINS / "outputs"


def test_an_internal_error_is_no_regression(monkeypatch: pytest.MonkeyPatch):
    """Python would exit with 1."""

    def fails():
        raise RuntimeError("lost")

    monkeypatch.setattr("plumbline.core.codes.registered", fails)
    done = asked("explain")
    assert done.code == 2 and "RuntimeError: lost" in done.err


def test_a_full_disk_behind_standard_output_is_no_internal_error(testbed: Testbed):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([BIN / "plumbline", "explain"], env=testbed.env, stdout=full,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert (done.returncode, codes_in(done.stderr)) == (2, ["files.not-writable"])
    assert len(done.stderr.splitlines()) == 1


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
    benchmark: str, key: str, tasks: int | None, fom: tuple
):
    done = asked("parse", benchmark, OUTPUTS / f"{key}.out")
    assert (done.code, done.err) == (0, "")
    read = json.loads(done.out)
    assert read["tasks"] == tasks
    keys = ("metric", "value", "unit", "size")
    assert {**dict(zip(keys, fom, strict=True)), "location": ""} in read["foms"]


def test_parse_of_an_output_that_cannot_be_trusted(tmp_path: Path):
    path = tmp_path / "half.out"
    path.write_text((OUTPUTS / "PingPong.out").read_text()[:1500])
    done = asked("parse", "imb", path)
    assert (done.code, done.out, done.codes) == (1, "", ["output.not-parsed"])
    assert str(path) in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("benchmark", "file", "code", "part"),
    [
        ("imb", "missing.out", "input.unreadable-file", "missing.out"),
        ("imb", ".", "input.unreadable-file", str(OUTPUTS)),
        ("linpack", "hpcc.out", "input.unknown-name", "babelstream, commscope"),
        ("gpcent", "hpcc.out", "input.unknown-name", "gpcnet"),
    ],
)
def test_parse_of_what_is_not_there(benchmark: str, file: str, code: str, part: str):
    done = asked("parse", benchmark, OUTPUTS / file)
    assert (done.code, done.out, done.codes) == (2, "", [code])
    assert part in done.err


@pytest.mark.parametrize(
    ("words", "codes", "suggested"),
    [
        (["rum"], ["input.unknown-name"], "run?"),
        (["nosuch"], ["input.unknown-name"], "doctor"),
        (["doctor", "--nosuch"], [], ""),
    ],
)
def test_an_unknown_command_or_option(words: list[str], codes: list[str], suggested: str):
    done = asked(*words)
    assert (done.code, done.codes) == (2, codes) and suggested in done.err


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
    done = testbed.plumbline("run", *PINGPONG)
    assert "OK" in done.out and "\x1b" not in done.out


# -- doctor --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def examined(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A machine at hand with one program there, and one that is not."""
    testbed = make_testbed("local")
    testbed.environment("mpich", "imb")
    testbed.lacking()
    return testbed


@pytest.fixture(scope="module")
def found(examined: Testbed) -> dict:
    """What it is said to have."""
    done = examined.plumbline("doctor", "--format=json")
    assert done.code == 0, done.output
    return json.loads(done.out)


#: The name of each of the two cases of PingPong, but for its environment.
CASE = "imb_p2p %operation=PingPong %placement=on-socket @local:node"


def test_doctor_shows_what_would_run_and_what_would_not(examined: Testbed, found: dict):
    assert found["machine"]["host"] == platform.node()
    assert found["machine"]["kernel"] == platform.release()
    assert str(examined.scratch) in found["machine"]["scratch"]
    assert "on-socket" in found["machine"]["placements"]
    assert found["cut off"] == []
    cases = {case["case"]: case for case in found["cases"]}
    runs, skipped = cases[f"{CASE}+mpich"], cases[f"{CASE}+lacks"]
    assert (runs["runs"], runs["figures"], runs["asserted"]) == (True, 47, 0)
    assert (skipped["runs"], skipped["result"]) == (False, "skip")
    assert skipped["code"] == "build.wheel-not-installed"
    # Nothing was run, and nothing is left behind.
    assert examined.session_folders() == set()


def test_doctor_prints_the_same_as_text(found: dict, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "examine", lambda *_: found)
    done = asked("doctor")
    assert done.code == 0
    # First what would not run, a line for each reason; then what would, a line for each check.
    first, p2p, collective, *_, last = done.out.splitlines()
    assert first.startswith("skip: imb_p2p, imb_collective @local:node+lacks: 18 test cases: ")
    assert codes_in(first) == ["build.wheel-not-installed"]
    assert p2p == "runs: imb_p2p @local:node+mpich: 4 test cases: 188 figures, 0 asserted"
    assert "imb_collective @local:node+mpich: 14 test cases: " in collective
    assert " 18 of 36 " in last


def test_doctor_has_the_whole_name_of_a_single_case(found: dict, monkeypatch: pytest.MonkeyPatch):
    cases = [case for case in found["cases"] if case["case"] == f"{CASE}+mpich"]
    monkeypatch.setattr(doctor, "examine", lambda *_: {**found, "cases": cases})
    done = asked("doctor")
    assert f"runs: {CASE}+mpich: 47 figures, 0 asserted" in done.out


def test_doctor_suggests_a_build_only_of_what_it_would_bring(found: dict):
    for program in ("omp-stream", "serial-stream", "ior", "osu_latency"):
        assert "plumbline build local:openmpi" in found["programs"][program], program
    for program in ("cuda-stream", "hip-stream", "sycl-stream"):
        assert found["programs"][program].startswith("no: ")
        assert "plumbline build" not in found["programs"][program]


def test_doctor_of_a_system_that_is_not_there(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.asked("doctor", "--system=testbad")
    refused(done, "testbed", "[system.not-found]")


def test_doctor_of_checks_that_are_broken(testbed: Testbed):
    """A line each, with the file, and nothing of ReFrame's own output."""
    testbed.environment("disk", "fio")
    files = {name: testbed.folder / "broken" / f"{name}.py" for name in ("one", "two")}
    files["one"].parent.mkdir()
    for name, path in files.items():
        path.write_text(f"import reframe as rfm\nimport no{name}\n")
    done = testbed.asked("doctor", "-c", files["one"].parent)
    assert (done.code, done.codes, done.out) == (2, ["check.not-loaded"], "")
    found = sorted(done.err.splitlines(), key=lambda line: "two" in line)
    for name, line in zip(files, found, strict=True):
        assert f"{files[name]}:2" in line and "session" not in line.partition(name)[2]


# -- lint ----------------------------------------------------------------------------------------


def test_lint_writes_an_inventory_and_compares_with_it(testbed: Testbed):
    testbed.environment("disk", "fio")
    path = testbed.systems / "inventory" / "testbed.json"
    first = testbed.asked("lint")
    assert first.code == 0, first.output
    assert str(path) in first.out
    written = path.read_text()
    again = testbed.asked("lint")
    assert (again.code, path.read_text()) == (0, written)
    # One of the two cases is unknown then, and one is gone.
    edited = written.replace("direction=read", "direction=both")
    path.write_text(edited)
    differs = testbed.asked("lint")
    assert differs.code == 1 and "--accept" in differs.err
    (new,) = [line for line in differs.err.splitlines() if "direction=read" in line]
    (gone,) = [line for line in differs.err.splitlines() if "direction=both" in line]
    assert new != gone and path.read_text() == edited
    accepted = testbed.asked("lint", "--accept")
    assert (accepted.code, path.read_text()) == (0, written)


def test_an_inventory_that_is_none(testbed: Testbed):
    """It refuses a session before the first job, and does not hide that a figure fails."""
    testbed.environment("disk", "fio")
    testbed.refer(
        {"id": "r1", "benchmark": "fio", "metric": "read_bandwidth", "value": 1e6, "unit": "MB/s"}
    )
    path = testbed.systems / "inventory" / "testbed.json"
    path.parent.mkdir()
    path.write_text('{"case": "many"}')
    lint = testbed.asked("lint")
    assert lint.code == 1
    assert str(path) in lint.err and "--accept" in lint.err
    options = ["run", "-n", "fio.*read", "-S", "fio.size=8", "-S", "num_samples=1"]
    run = testbed.plumbline(*options)
    refused(run, str(path), "--accept", "[system.wrong-inventory]")
    assert run.sessions == []
    # A session of other checks is not compared with it.
    assert testbed.plumbline(*options, "-c", CHECKS / "fio.py").code == 1
