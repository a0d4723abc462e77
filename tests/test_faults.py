"""Bad input and faults: an error of a line or two that names file and mend, and nothing lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BIN, CHECKS, ROOT, STANDINS, Done, Testbed, refused, valid
from halfway import FILLING, PINGPONG, filling_disk_  # noqa: F401 - fixture

TOOLS = ROOT / ".tools"
OUTPUTS = STANDINS / "outputs"
ONE = ["-S", "num_samples=1", "-S", "num_warmups=0"]
FIO = ["-n", "fio", "-S", "fio.size=8", *ONE]

# -- system files --------------------------------------------------------------------------------

MALFORMED = {
    "unclosed": ("systems: [\n", ":2:1"),
    "tabs": ("systems:\n\t- name: testbed\n", ":2:1"),
    "bytes": (b"systems: \xff\xfe\n", ""),
    "empty": ("", "systems"),
    "list": ("[]\n", "systems"),
    "scalar": ("systems\n", "systems"),
    "mapping": ("systems: {}\n", "systems"),
    "two": ("systems: [{name: testbed}, {name: other}]\n", "one system"),
    "name": ("systems: [{name: other, hostnames: ['.*'], partitions: []}]\n", "testbed"),
}
#: A change of a good file -> what the error names.
MISSHAPEN = {
    "key": (("environments:", "enviroments:"), "enviroments"),
    "target": (("target_systems:", "target_system:"), "target_systems"),
    "no-partitions": (("  partitions:", "  partition:"), "partitions"),
    "partition-text": (("  - name: node", "  - node\n  - name: node"), "partition"),
    "misspelt": (("scheduler:", "schedular:"), "scheduler"),
    "launcher": (("launcher: local", "launcher: rsh"), "rsh"),
    "provider": (("provider: path", "provider: brew"), "brew"),
    "environment": (("- disk-io\n", "- disc\n"), "disc"),
    "placement": (("detect: true", "placements: [on-moon]"), "on-moon"),
    "placements": (("detect: true", "placements: 5"), "placements"),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_system_file(testbed: Testbed, fault: str):
    text, says = MALFORMED[fault]
    path = testbed.systems / "testbed.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    # `plumbline run` asks ReFrame as the plain command does.
    refused(testbed.plumbline("run", *FIO), str(path), says)
    if fault in ("unclosed", "list"):
        refused(testbed.reframe("-c", CHECKS, "-r", *FIO), str(path), says)


@pytest.mark.holds("checkout")
@pytest.mark.parametrize("fault", MISSHAPEN)
def test_a_misshapen_system_file(testbed: Testbed, fault: str):
    change, says = MISSHAPEN[fault]
    testbed.environment("disk", "fio")
    path = testbed.write()
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    refused(testbed.plumbline("run", *FIO), str(path), says)


def test_no_system_file(testbed: Testbed):
    refused(testbed.plumbline("run", *FIO), str(testbed.systems), "systems/local.yaml")


# -- checks --------------------------------------------------------------------------------------


def test_an_unknown_placement_of_a_check(testbed: Testbed):
    testbed.environment("mpich", "imb")
    path = testbed.check_file("lost", placement="on-sockets")
    said = "check lost: no placement 'on-sockets'; near: on-socket"
    refused(testbed.plumbline("run", "-c", path, *ONE), said)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tags": {"quick"}}, "smoke"),
        ({"benchmark": "oso"}, "no parser for benchmark 'oso'; near: osu"),
        ({"num_samples": 0}, "num_samples"),
    ],
    ids=["tag", "benchmark", "samples"],
)
def test_a_check_that_declares_nonsense(testbed: Testbed, fields: dict, says: str):
    testbed.environment("mpich", "imb")
    path = testbed.check_file("odd", **fields)
    refused(testbed.plumbline("run", "-c", path), "odd", says)


UNLOADABLE = {"import": "import nosuch\n", "syntax": "def broken(:\n", "run": "1 / 0\n"}


@pytest.mark.parametrize("fault", UNLOADABLE)
def test_a_check_file_that_does_not_import(testbed: Testbed, fault: str):
    testbed.environment("mpich", "imb")
    good = testbed.check_file("good")
    bad = testbed.folder / "bad.py"
    bad.write_text(f"import reframe as rfm\n{UNLOADABLE[fault]}")
    # Not even the good one beside it is run: half a session would look whole.
    refused(testbed.plumbline("run", "-c", good, "-c", bad, *ONE), str(bad))


def test_a_check_file_that_is_not_there(testbed: Testbed):
    testbed.environment("mpich", "imb")
    missing = testbed.folder / "missing.py"
    refused(testbed.plumbline("run", "-c", missing, *ONE), str(missing))


@pytest.mark.parametrize("selection", ["-n nosuch", "-t nosuch", "-p nosuch", "--mode=screen"])
def test_a_selection_of_nothing(testbed: Testbed, selection: str):
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", *selection.split())
    refused(done, "no test case")
    assert "`plumbline run` does" not in done.out


def test_a_check_that_stops_to_import_vanishes_from_a_plain_session(testbed: Testbed):
    """What the plain command cannot enforce, it says."""
    testbed.environment("mpich", "imb")
    good, bad = testbed.check_file("good"), testbed.folder / "bad.py"
    bad.write_text("import reframe as rfm\nimport nosuch\n")
    done = testbed.reframe("-c", good, "-c", bad, "-r", *ONE)
    assert [fields["result"] for fields in done.records] == ["pass"]
    assert "nothing was compared with the inventory" in done.out


# -- reference tables ----------------------------------------------------------------------------

ROW = {"id": "r1", "benchmark": "fio", "metric": "read_bandwidth", "value": 1, "unit": "MB/s"}
FAULTY_ROWS = {
    "placement": {"placement": "on-moon"},
    "source": {"source": "nobody"},
    "metric": {"metric": "read_speed"},
    "unit": {"unit": "us"},
    "value": {"value": "1,5"},
    "kind": {"kind": "guess"},
    "statistic": {"statistic": "modus"},
    "spread": {"spread": "-1"},
    "conditions": {"conditions": "direct"},
}


def test_a_faulty_reference_row(testbed: Testbed):
    testbed.environment("disk", "fio")
    path = testbed.refer(ROW, {**ROW, "id": "r2", "placement": "on-moon"})
    refused(testbed.plumbline("run", *FIO), f"{path}:3: row r2: column placement", "on-moon")


@pytest.mark.holds("checkout")
def test_every_faulty_reference_row_is_named(testbed: Testbed):
    testbed.environment("disk", "fio")
    rows = [{**ROW, "id": column, **fault} for column, fault in FAULTY_ROWS.items()]
    path = testbed.refer(*rows)
    done = testbed.plumbline("lint")
    assert done.code == 1 and "Traceback" not in done.said
    lines = done.err.splitlines()
    for number, column in enumerate(FAULTY_ROWS, 2):
        found = [line for line in lines if line.startswith(f"plumbline: {path}:{number}: ")]
        assert found, f"{column}: {done.err}"
        assert f": row {column}: column {column}: " in found[0]


@pytest.mark.parametrize("name", ["tolerance.yaml", "foms.yaml", "sources.yaml"])
def test_a_faulty_reference_file(testbed: Testbed, name: str):
    testbed.environment("disk", "fio")
    path = testbed.reference / name
    path.write_text("fio: [\n")
    refused(testbed.plumbline("run", *FIO), f"{path}:2:1")
    path.unlink()
    refused(testbed.plumbline("run", *FIO), str(path))


def test_a_table_of_other_columns_or_with_an_id_twice(testbed: Testbed):
    testbed.environment("disk", "fio")
    path = testbed.reference / "paper.csv"
    path.write_text("id,value\nr1,5\n")
    refused(testbed.plumbline("run", *FIO), f"{path}:1", "missing system")
    path.unlink()
    path = testbed.refer(ROW, ROW)
    refused(testbed.plumbline("run", *FIO), str(path), "r1")


# -- scratch and disks ---------------------------------------------------------------------------


def test_no_scratch_folder(testbed: Testbed):
    testbed.environment("disk", "fio")
    missing = testbed.folder / "no-scratch"
    done = testbed.plumbline("run", *FIO, PLUMBLINE_SCRATCH=missing)
    refused(done, str(missing), "PLUMBLINE_SCRATCH")


def test_a_scratch_folder_that_is_a_file(testbed: Testbed):
    testbed.environment("disk", "fio")
    file = testbed.folder / "file"
    file.touch()
    refused(testbed.plumbline("run", *FIO, PLUMBLINE_SCRATCH=file), str(file), "PLUMBLINE_SCRATCH")


def test_too_little_scratch_space(testbed: Testbed, small_disk: Callable[[str], Path]):
    testbed.environment("disk", "imb fio")
    scratch = small_disk("4m")
    selected = ["-n", "fio|PingPong", "-S", "fio.size=8", *ONE]
    done = testbed.plumbline("run", *selected, PLUMBLINE_SCRATCH=scratch)
    assert done.code == 0, done.said
    assert done.record("PingPong".join(("operation=", "")))["result"] == "pass"
    for way in ("read", "write"):
        fields = done.record(f"direction={way}")
        assert fields["result"] == "skip"
        assert str(scratch) in fields["reason"] and "GiB free" in fields["reason"]
        assert "scratch elsewhere" in fields["reason"]
    assert list(scratch.iterdir()) == []


def _lost(done: Done) -> list[dict]:
    """The records that standard output got instead of the disk."""
    said = re.findall(r"^plumbline-record (.*)$", done.out, re.M)
    return [valid(json.loads(line)) for line in said]


@pytest.mark.parametrize(
    ("command", "faulty"), [("plumbline", False), ("reframe", False), ("reframe", True)]
)
def test_a_disk_that_fills_up(testbed: Testbed, filling_disk: Path, command: str, faulty: bool):
    if faulty:
        testbed.refer(
            {"id": "r1", "benchmark": "imb", "metric": "pingpong_latency", "message_size": 8,
             "value": 0.001, "unit": "us"},
        )  # fmt: skip
    if command == "plumbline":
        done = testbed.plumbline("run", *FILLING)
    else:
        done = testbed.reframe("-c", CHECKS, "-r", *FILLING)
    stored, lost = done.records, _lost(done)
    assert lost
    # What was found counts more than what could not be told.
    found = faulty or any(f["result"] == "invalid" for f in [*stored, *lost])
    assert done.code == (1 if found else 2), done.said
    # Each is in one of the two places, and whole.
    assert sorted(f["environment"] for f in [*stored, *lost]) == ["fills", "quick"]
    kinds = {(f["environment"], f["result"], len(f["foms"])) for f in [*stored, *lost]}
    # A launcher that cannot write what a task says ends with an error of its own.
    ran = "fail" if faulty else "pass"
    assert kinds <= {("quick", ran, 47), ("fills", ran, 47), ("fills", "invalid", 0)}
    assert "records.jsonl" in done.out and "No space left on device" in done.out


def test_a_disk_that_is_full_from_the_start(testbed: Testbed, small_disk: Callable[[str], Path]):
    disk = small_disk("64k")
    (disk / "fill").write_bytes(b"\0" * 60 * 1024)
    testbed.environment("mpich", "imb")
    done = testbed.plumbline("run", *PINGPONG, PLUMBLINE_RESULTS=disk)
    assert done.code == 2, done.said
    assert str(disk) in done.err and "plumbline: " in done.err
    assert "Traceback" not in done.said


# -- the provider's prefixes ---------------------------------------------------------------------


def copied_tools(testbed: Testbed) -> Path:
    """The installed wheels in a folder of the test's own, as hard links where that may be."""
    if not (TOOLS / "imb" / "bin" / "IMB-MPI1").is_file():
        pytest.skip(f"{TOOLS} is not set up: make setup")
    folder = testbed.folder / "tools"

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    shutil.copytree(TOOLS, folder, copy_function=link, symlinks=True)
    testbed.env["PLUMBLINE_TOOLS"] = str(folder)
    return folder


def pip_environment(testbed: Testbed) -> None:
    testbed.environments = [
        {
            "name": "pip",
            "features": ["imb"],
            "extras": {"provider": "pip"},
            "target_systems": [testbed.name],
        }
    ]
    testbed.write()


def cut_short(path: Path) -> None:
    """Halves a file that may be a hard link."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


HALF_INSTALLED: dict[str, Callable[[Path], None]] = {
    "no-launcher": lambda tools: (tools / "mpich/bin/mpiexec").unlink(),
    "no-proxy": lambda tools: (tools / "mpich/bin/hydra_pmi_proxy").unlink(),
    "short-library": lambda tools: cut_short((tools / "mpich/lib/libmpi.so.12").resolve()),
    "short-program": lambda tools: cut_short(tools / "imb/bin/IMB-MPI1"),
    "no-record": lambda tools: shutil.rmtree(
        next((tools / "imb").glob("lib/python*/site-packages/*.dist-info"))
    ),
    "empty": lambda tools: [shutil.rmtree(tools / "imb"), (tools / "imb").mkdir()],
    "gone": lambda tools: shutil.rmtree(tools / "mpich"),
}


@pytest.mark.parametrize("fault", HALF_INSTALLED)
def test_a_half_installed_prefix_is_a_skip_with_its_mend(testbed: Testbed, fault: str):
    tools = copied_tools(testbed)
    HALF_INSTALLED[fault](tools)
    pip_environment(testbed)
    done = testbed.reframe("-c", CHECKS, "-r", *PINGPONG)
    (fields,) = done.records
    assert fields["result"] == "skip", fields["reason"]
    assert str(tools) in fields["reason"]
    assert fields["reason"].endswith("plumbline setup")
    assert fields["foms"] == []


@pytest.fixture
def registry(tmp_path: Path) -> None:
    """Skips where pip cannot bring the locked wheel of MPICH."""
    lock = ROOT / "reframe" / "plumbline" / "software" / "pip" / "mpich.lock"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    options = ["--no-deps", "--require-hashes", "--timeout=15", "--retries=1"]
    command = [*pip, *options, "-d", str(tmp_path), "-r", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip reaches no package index: {done.stderr.strip().splitlines()[-1:]}")


def with_programs(testbed: Testbed) -> None:
    """Has hpcc and fio on PATH, so that a set-up does not ask apt for them."""
    testbed.env["PATH"] = f"{STANDINS}:{testbed.env['PATH']}"


def test_setup_repairs_a_half_installed_prefix(testbed: Testbed, registry: None):
    tools = copied_tools(testbed)
    with_programs(testbed)
    HALF_INSTALLED["short-library"](tools)
    HALF_INSTALLED["empty"](tools)
    done = testbed.plumbline("setup")
    assert done.code == 0, done.said
    assert "mpich is half installed" in done.out and "imb is half installed" in done.out
    assert testbed.plumbline("setup").out == ""
    pip_environment(testbed)
    done = testbed.reframe("-c", CHECKS, "-r", *PINGPONG)
    (fields,) = done.records
    # The real program, by the real launcher.
    assert fields["result"] == "pass", fields["reason"]
    assert fields["build"]["path"] == str(tools / "imb" / "bin" / "IMB-MPI1")
    assert len(fields["foms"]) == 47


def test_a_setup_that_may_not_write_says_so(testbed: Testbed):
    file = testbed.folder / "file"
    file.touch()
    done = testbed.plumbline("setup", PLUMBLINE_TOOLS=str(file / "tools"))
    assert done.code == 2
    assert "Traceback" not in done.said
    assert f"{file}/tools: cannot be written (Not a directory)" in done.err


def test_a_setup_that_reaches_no_index_says_so(testbed: Testbed):
    tools = copied_tools(testbed)
    with_programs(testbed)
    HALF_INSTALLED["short-program"](tools)
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = testbed.plumbline("setup", **nowhere)
    refused(done, str(tools / "imb"), "imb.log", "make run")
    # What was there is not taken away, and nothing half made is left.
    assert (tools / "imb" / "bin" / "IMB-MPI1").is_file()
    assert not list(tools.glob("*.partial"))


def test_without_a_network_all_works_once_it_is_set_up(testbed: Testbed):
    apart = ["unshare", "-n", "--"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*apart, "true"], capture_output=True).returncode
    ):
        pytest.skip("needs root and unshare(1) for a machine without a network")
    if not (TOOLS / "imb" / "bin" / "IMB-MPI1").is_file():
        pytest.skip(f"{TOOLS} is not set up: make setup")
    testbed.environment("mpich", "imb")
    with_programs(testbed)
    done = testbed.run(*apart, BIN / "plumbline", "setup")
    assert (done.code, done.said) == (0, "")
    done = testbed.run(*apart, BIN / "reframe", "-c", CHECKS, "-l", "--mode=smoke")
    assert done.code == 0 and "PingPong" in done.out
    done = testbed.run(*apart, BIN / "plumbline", "run", *PINGPONG)
    assert done.code == 0, done.said
    assert [fields["result"] for fields in done.records] == ["pass"]


# -- hostile text --------------------------------------------------------------------------------


@pytest.mark.holds("shell")
@pytest.mark.holds("environment")
def test_hostile_text_never_reaches_a_shell(testbed: Testbed):
    marker = testbed.folder / "marker"
    touch = f"touch {marker}"
    hostile = [f"$({touch})", f"`{touch}`", f"x; {touch} #", f"' \" & {touch}"]
    hostile += [f"a}}b{{ || {touch}", "*", "-", f"\n{touch}\n"]
    keys = ["access", "api", "barrier", "block", "buffer", "core", "cores", "device"]
    conditions = dict(zip(keys, hostile, strict=False))
    arguments = testbed.folder / "arguments"
    testbed.environment("mpich", "imb", STANDIN_ARGS=arguments)
    path = testbed.check_file(
        "hostile", conditions=conditions, executable_opts=["PingPong", *hostile]
    )
    # An extra of more than one line is refused at the start, so the last text is no extra.
    extras = {f"extra{n}": text for n, text in enumerate(hostile[:-1])}
    told = ",".join(f"{key}={value}" for key, value in extras.items())
    refused(testbed.plumbline("run", *ONE, f"--session-extras=extra={hostile[-1]}"), "extra")
    done = testbed.plumbline("run", "-c", path, *ONE, f"--session-extras={told}")
    assert done.code == 0, done.said
    (fields,) = done.records
    assert fields["extras"] == extras
    assert fields["conditions"] == conditions
    assert set(arguments.read_text().splitlines()) == {
        line for text in ["PingPong", *hostile] for line in text.split("\n")
    }
    assert not marker.exists()


def test_a_results_folder_with_a_space_works_or_is_refused(testbed: Testbed):
    testbed.environment("disk", "fio")
    testbed.results = testbed.folder / "my results"
    done = testbed.plumbline("run", *FIO, PLUMBLINE_RESULTS=testbed.results)
    if done.code == 2:
        refused(done, str(testbed.results))
    else:
        assert done.code == 0, done.said
        assert [fields["result"] for fields in done.records] == ["pass", "pass"]


@pytest.mark.holds("shell")
@pytest.mark.parametrize(
    "name",
    ["a b;touch $STANDIN_MARKER;$(touch $STANDIN_MARKER)`touch $STANDIN_MARKER`", 'it\'s "one" *'],
    ids=["commands", "quotes"],
)
def test_hostile_names_of_folders_never_reach_a_shell(testbed: Testbed, name: str):
    marker = testbed.folder / "marker"
    scratch = testbed.scratch / name
    scratch.mkdir()
    testbed.environment("disk", "fio", STANDIN_MARKER=marker)
    done = testbed.plumbline("run", *FIO, PLUMBLINE_SCRATCH=scratch)
    assert done.code == 0, done.said
    assert [fields["result"] for fields in done.records] == ["pass", "pass"]
    assert list(testbed.scratch.rglob("*")) == [scratch]
    assert not marker.exists()


# -- a command line that ReFrame would let through -----------------------------------------------


def test_a_check_that_its_own_setting_breaks(testbed: Testbed) -> None:
    """ReFrame drops a check that refuses a variable's value, and passes the others."""
    testbed.environment("mpich", "imb")
    done = testbed.plumbline("run", *PINGPONG, "-S", "imb_collective.num_warmups=-1")
    assert done.code == 2, done.said
    assert "imb_collective" in done.err and "num_warmups" in done.err
    assert not done.sessions


def test_an_abbreviated_option_runs_nothing_unrecorded(testbed: Testbed) -> None:
    """ReFrame takes --ru for --run; a session that was not set up for it is refused."""
    testbed.environment("mpich", "imb")
    done = testbed.reframe("-c", "checks/", "--ru", *PINGPONG)
    assert done.code == 2, done.said
    assert "--run" in done.err


@pytest.mark.parametrize("option", ["-l", "--describe", "--dry-run", "--performance-report"])
def test_options_that_a_session_cannot_have(testbed: Testbed, option: str) -> None:
    """Refused in one line, before anything starts."""
    done = testbed.plumbline("run", option)
    assert done.code == 2
    assert option in done.err and len(done.err.splitlines()) == 1


def test_a_site_row_that_no_case_can_meet(testbed: Testbed) -> None:
    """A run refuses it: a system or toolchain that is misspelt would assert nothing."""
    testbed.environment("mpich", "imb")
    path = testbed.refer(
        {"id": "lost", "benchmark": "imb", "metric": "pingpong_latency", "message_size": 8,
         "value": 1, "unit": "us", "toolchain": "mpihc"})  # fmt: skip
    done = testbed.plumbline("run", *PINGPONG)
    assert done.code == 2, done.said
    assert "column toolchain: testbed has no environment 'mpihc'; near: mpich" in done.err
    assert f"{path}:2: " in done.err
