"""Bad input and faults: an error of a line or two with file, code and remedy, and nothing lost."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import records
from conftest import BIN, CHECKS, ROOT, STANDINS, Done, Testbed, codes_in, fault_of, refused
from halfway import FILLING, PINGPONG, filling_disk_  # noqa: F401 - fixture
from plumbline.check import record
from plumbline.cli.run import run as run_command
from plumbline.reference import lookup
from plumbline.session import preflight, run
from plumbline.session.session import Session
from plumbline.site import configuration, host
from plumbline.software import providers
from records import valid
from reframe.frontend import cli

TOOLS = ROOT / ".tools"
OUTPUTS = STANDINS / "outputs"
ONE = ["-S", "num_samples=1", "-S", "num_warmups=0"]
FIO = ["-n", "fio", "-S", "fio.size=8", *ONE]

# -- system files --------------------------------------------------------------------------------

#: The whole text of a system file, or a change of a good one -> what the refusal names.
SYSTEM_FILES: dict[str, tuple[str | bytes | tuple[str, str], str]] = {
    "unclosed": ("systems: [\n", ":2:1"),
    "tabs": ("systems:\n\t- name: testbed\n", ":2:1: not valid YAML: a tab"),
    "repeated": (("scheduler:", "scheduler: slurm\n    scheduler:"), "'scheduler'"),
    "timestamp": ("systems: !!timestamp x\n", ":1:10: "),
    "float": ("systems:\n- !!float ''\n", ":2:3: "),
    "bool": ("systems: !!bool x\n", ":1:10: "),
    "python": ("systems: !!python/object/apply:os.abort []\n", ":1:10: "),
    "bytes": (b"systems: \xff\xfe\n", ""),
    "empty": ("", "systems"),
    "list": ("[]\n", "`systems`"),
    "scalar": ("systems\n", "systems"),
    "mapping": ("systems: {}\n", "systems"),
    "two": ("systems: [{name: testbed}, {name: other}]\n", "systems"),
    "name": ("systems: [{name: other, hostnames: ['.*'], partitions: []}]\n", "'testbed'"),
    "key": (("environments:", "enviroments:"), "enviroments"),
    "target": (("target_systems:", "target_system:"), "target_systems: [testbed]"),
    "no-partitions": (("  partitions:", "  partition:"), "partitions"),
    "partition-text": (("  - name: node", "  - node\n  - name: node"), "partition"),
    "misspelt": (("scheduler:", "schedular:"), "scheduler"),
    "launcher": (("launcher: local", "launcher: rsh"), "rsh"),
    "provider": (("provider: path", "provider: brew"), "brew"),
    "environment": (("- disk-io\n", "- disc\n"), "disc"),
    "placement": (("detect: true", "placements: [on-soket]"), "on-socket"),
    "placements": (("detect: true", "placements: 5"), "placements"),
}
#: The codes of those that are no YAML.
CODES = {
    **dict.fromkeys(["unclosed", "tabs", "repeated"], "input.wrong-file"),
    **dict.fromkeys(["timestamp", "float", "bool", "python"], "input.wrong-file"),
    "bytes": "input.unreadable-file",
}


@pytest.fixture
def here(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Testbed:
    """A system with fio, which this process has for its own."""
    testbed.environment("disk", "fio")
    testbed.enter(monkeypatch)
    return testbed


def gathered() -> dict:
    """The configuration of a session that runs, once its references are checked."""
    found = configuration.gather(host.meant([]), "name", running=True, full=False)
    preflight.check_references(found)
    return found


@pytest.mark.holds("checkout")
@pytest.mark.parametrize("fault", SYSTEM_FILES)
def test_a_faulty_system_file(here: Testbed, fault: str):
    text, name = SYSTEM_FILES[fault]
    path = here.systems / "testbed.yaml"
    if isinstance(text, tuple):
        good, (before, after) = path.read_text(), text
        assert before in good
        text = good.replace(before, after)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    fault_of(gathered, CODES.get(fault, "system.wrong-file"), str(path), name)


def test_a_faulty_system_file_starts_nothing(testbed: Testbed):
    """By either command."""
    path = testbed.systems / "testbed.yaml"
    path.write_text("systems: [\n")
    for done in (testbed.plumbline("run", *FIO), testbed.reframe("-c", CHECKS, "-r", *FIO)):
        refused(done, f"{path}:2:1", "[input.wrong-file]")


# -- checks --------------------------------------------------------------------------------------

#: Fields of a check that are wrong, or the text of its file -> what is named.
CHECKS_AT_FAULT: dict[str, tuple[dict | str, str]] = {
    "placement": ({"placement": "on-sockets"}, "on-socket"),
    "tag": ({"tags": {"quick"}}, "smoke"),
    "benchmark": ({"benchmark": "oso"}, "osu"),
    "samples": ({"num_samples": 0}, "num_samples"),
    "import": ("import nosuch\n", "nosuch"),
}


def not_loaded(testbed: Testbed, *paths: Path) -> list[str]:
    """The lines about checks, beside which the good one is run: the session fails by them."""
    testbed.environment("mpich", "imb")
    files = [testbed.check_file("good"), *paths]
    words = (word for path in files for word in ("-c", path))
    done = testbed.plumbline("run", *words)
    assert [fields["result"] for fields in done.records] == ["pass"], done.output
    assert (done.code, done.end["code"]) == (1, 1) and "Traceback" not in done.output
    assert {*codes_in("\n".join(done.end["faults"]))} == {"check.not-loaded"}
    return done.end["faults"]


def test_checks_at_fault(testbed: Testbed):
    """Each is named on its line."""
    for fault, (declared, _) in CHECKS_AT_FAULT.items():
        if isinstance(declared, dict):
            testbed.check_file(f"odd_{fault}", **declared)
        else:
            (testbed.folder / f"odd_{fault}.py").write_text(f"import reframe as rfm\n{declared}")
    lines = not_loaded(testbed, *sorted(testbed.folder.glob("odd_*.py")))
    for fault, (_, name) in CHECKS_AT_FAULT.items():
        assert [line for line in lines if f"odd_{fault}" in line and name in line], lines


@pytest.mark.parametrize(
    ("text", "name"),
    [("def broken(:\n", "odd.py:2"), ("1 / 0\n", "odd.py")],
    ids=["syntax", "run"],
)
def test_a_file_at_fault(testbed: Testbed, text: str, name: str):
    path = testbed.folder / "odd.py"
    path.write_text(f"import reframe as rfm\n{text}")
    (line,) = [line for line in not_loaded(testbed, path) if str(path) in line]
    assert name in line


def test_checks_that_do_not_exist(testbed: Testbed):
    """A mistake of the command line: nothing runs."""
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", "-c", testbed.check_file("good"), "-c", testbed.folder / "odd")
    refused(done, str(testbed.folder / "odd"), "does not exist", "[check.not-loaded]")


def test_nothing_but_a_file_at_fault(testbed: Testbed):
    testbed.environment("disk", "fio")
    path = testbed.folder / "odd.py"
    path.write_text("import reframe as rfm\ndef broken(:\n")
    done = testbed.plumbline("run", "-c", testbed.check_file("good"), "-c", path, "-n", "gud")
    refused(done, "-n gud", f"{path}:2", "[check.not-loaded]")


def test_a_selection_of_nothing(testbed: Testbed):
    testbed.environment("disk", "fio")
    refused(testbed.plumbline("run", "--mode=screen"), "[session.nothing-selected]")


def test_a_plain_session_without_a_check_that_does_not_load(testbed: Testbed):
    """ReFrame warns, and exits with 0. What the plain command cannot enforce, it reports."""
    testbed.environment("mpich", "imb")
    good, bad = testbed.check_file("good"), testbed.folder / "bad.py"
    bad.write_text("import reframe as rfm\nimport nosuch\n")
    done = testbed.reframe("-c", good, "-c", bad, "-r", *ONE)
    assert [fields["result"] for fields in done.records] == ["pass"]
    assert (done.code, codes_in("\n".join(done.end["faults"]))) == (1, ["check.not-loaded"])
    assert "testbed.json" in done.end["notes"][-1]


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


@pytest.mark.holds("checkout")
def test_every_faulty_reference_row_is_named(testbed: Testbed):
    """By lint all of them, beside a system file; a run is refused."""
    testbed.environment("disk", "fio")
    rows = [{**ROW, "id": column, **fault} for column, fault in FAULTY_ROWS.items()]
    path = testbed.refer(*rows)
    other = testbed.systems / "other.yaml"
    other.write_text("systems: [\n")
    done = testbed.plumbline("lint")
    assert done.code == 1 and "Traceback" not in done.output
    assert f"{other}:2:1" in done.err and not (testbed.systems / "inventory").exists()
    other.unlink()
    lines = done.err.splitlines()
    for number, column in enumerate(FAULTY_ROWS, 2):
        found = [line for line in lines if line.startswith(f"plumbline: {path}:{number}: ")]
        assert found, f"{column}: {done.err}"
        assert f": row {column}: column {column}: " in found[0]
    path = testbed.refer(ROW, {**ROW, "id": "r2", "placement": "on-moon"})
    done = testbed.plumbline("run", *FIO)
    refused(done, f"{path}:3: row r2: column placement", "on-moon", "[reference.wrong-table]")


def test_a_faulty_reference_file(here: Testbed):
    for name in ("tolerance.yaml", "foms.yaml", "sources.yaml"):
        path = here.reference / name
        path.write_text("fio: [\n")
        lookup.loaded.cache_clear()
        fault_of(gathered, "input.wrong-file", f"{path}:2:1")
        path.unlink()
        path.mkdir()
        lookup.loaded.cache_clear()
        fault_of(gathered, "input.unreadable-file", str(path))
        path.rmdir()


def test_a_table_of_other_columns_or_with_an_id_twice(here: Testbed):
    path = here.reference / "paper.csv"
    path.write_text("id,value\nr1,5\n")
    fault_of(gathered, "reference.wrong-table", f"{path}:1", "system")
    path.unlink()
    lookup.loaded.cache_clear()
    fault_of(gathered, "reference.wrong-table", str(here.refer(ROW, ROW)), "r1")


def test_a_site_row_that_no_case_can_meet(here: Testbed) -> None:
    """A run refuses it: a system or toolchain that is misspelt would assert nothing."""
    path = here.refer({**ROW, "toolchain": "dikc-io"})
    fault_of(gathered, "reference.wrong-table", f"{path}:2: ", "column toolchain", "disk-io")


# -- scratch and disks ---------------------------------------------------------------------------


def test_a_scratch_folder_that_is_none(testbed: Testbed):
    testbed.environment("disk", "fio")
    wrong = {
        testbed.folder / "missing": "[scratch.not-writable]",
        testbed.write(): "[files.not-a-folder]",
    }
    for scratch, code in wrong.items():
        done = testbed.plumbline("run", *FIO, PLUMBLINE_SCRATCH=scratch)
        refused(done, str(scratch), "PLUMBLINE_SCRATCH", code)


def test_too_little_scratch_space(testbed: Testbed, small_disk: Callable[[str], Path]):
    testbed.environment("disk", "imb fio")
    scratch = small_disk("4m")
    selected = ["-n", "fio|PingPong", "-S", "fio.size=8", *ONE]
    done = testbed.plumbline("run", *selected, PLUMBLINE_SCRATCH=scratch)
    assert done.code == 0, done.output
    assert done.record("operation=PingPong")["result"] == "pass"
    for way in ("read", "write"):
        fields = done.record(f"direction={way}")
        assert (fields["result"], fields["code"]) == ("skip", "scratch.too-little-space")
        assert str(scratch) in fields["reason"]
    assert list(scratch.iterdir()) == []


def _lost(done: Done) -> list[dict]:
    """The records that standard output got instead of the disk."""
    lines = re.findall(r"^plumbline-record (.*)$", done.out, re.M)
    return [valid(json.loads(line)) for line in lines]


@pytest.mark.parametrize("command", ["plumbline", "reframe"])
def test_a_disk_that_fills_up(testbed: Testbed, filling_disk: Path, command: str):
    if command == "plumbline":
        done = testbed.plumbline("run", *FILLING)
    else:
        done = testbed.reframe("-c", CHECKS, "-r", *FILLING)
    stored, lost = done.records, _lost(done)
    assert lost
    found = any(f["result"] == "invalid" for f in [*stored, *lost])
    assert done.code == (1 if found else 2), done.output
    # Each is in one of the two places, and whole.
    assert sorted(f["environment"] for f in [*stored, *lost]) == ["fills", "quick"]
    kinds = {(f["environment"], f["result"], len(f["foms"])) for f in [*stored, *lost]}
    # A launcher that cannot write what a task says ends with an error of its own.
    assert kinds <= {("quick", "pass", 47), ("fills", "pass", 47), ("fills", "invalid", 0)}
    assert "records.jsonl" in done.out and os.strerror(errno.ENOSPC) in done.out


@pytest.mark.parametrize(("result", "code"), [("pass", 2), ("fail", 1)])
def test_what_was_found_counts_more_than_what_was_not_stored(result: str, code: int):
    ended = Session("name", dry_run=False, extras={})
    ended.lost = 1
    case = records.case("s", "2026-11-01T00:00:00Z", result=result)
    ended.records = [record.validate(case)]
    assert ended.exit_code == code


def test_a_disk_that_is_full_from_the_start(testbed: Testbed, small_disk: Callable[[str], Path]):
    disk = small_disk("64k")
    (disk / "fill").write_bytes(b"\0" * 60 * 1024)
    testbed.environment("mpich", "imb")
    done = testbed.plumbline("run", *PINGPONG, PLUMBLINE_RESULTS=disk)
    refused(done, str(disk), "[files.not-writable]")


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
def test_a_half_installed_prefix_provides_nothing(testbed: Testbed, monkeypatch, fault: str):
    tools = copied_tools(testbed)
    HALF_INSTALLED[fault](tools)
    monkeypatch.setenv("PLUMBLINE_TOOLS", str(tools))
    with pytest.raises(providers.NotProvided) as refusal:
        providers.find("pip", "IMB-MPI1")
    assert refusal.value.code == "build.wheel-not-installed"
    assert str(tools) in str(refusal.value) and "plumbline setup" in str(refusal.value)


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
    testbed.imb()
    (fields,) = testbed.reframe("-c", CHECKS, "-r", *PINGPONG).records
    assert (fields["result"], fields["code"]) == ("skip", "build.wheel-not-installed")
    done = testbed.plumbline("setup")
    assert done.code == 0, done.output
    assert str(tools / "mpich") in done.out and str(tools / "imb") in done.out
    assert testbed.plumbline("setup").out == ""
    done = testbed.reframe("-c", CHECKS, "-r", *PINGPONG)
    (fields,) = done.records
    # The real program, by the real launcher.
    assert fields["result"] == "pass", fields["reason"]
    assert fields["build"]["path"] == str(tools / "imb" / "bin" / "IMB-MPI1")
    assert len(fields["foms"]) == 47


def test_a_setup_that_may_not_write_is_refused(testbed: Testbed):
    file = testbed.folder / "file"
    file.touch()
    done = testbed.plumbline("setup", PLUMBLINE_TOOLS=file / "tools")
    refused(done, f"{file}/tools", "[files.not-writable]")


def test_a_setup_that_reaches_no_index_is_refused(testbed: Testbed):
    tools = copied_tools(testbed)
    with_programs(testbed)
    HALF_INSTALLED["short-program"](tools)
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = testbed.plumbline("setup", **nowhere)
    refused(done, str(tools / "imb"), "imb.log", "[spack.not-fetched]")
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
    assert (done.code, done.output) == (0, "")
    done = testbed.run(*apart, BIN / "reframe", "-c", CHECKS, "-l", "--mode=smoke")
    assert done.code == 0 and "PingPong" in done.out
    done = testbed.run(*apart, BIN / "plumbline", "run", *PINGPONG)
    assert done.code == 0, done.output
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
    listed = ",".join(f"{key}={value}" for key, value in extras.items())
    done = testbed.plumbline("run", "-c", path, *ONE, f"--session-extras={listed}")
    assert done.code == 0, done.output
    (fields,) = done.records
    assert fields["extras"] == extras
    assert fields["conditions"] == conditions
    assert set(arguments.read_text().splitlines()) == {
        line for text in ["PingPong", *hostile] for line in text.split("\n")
    }
    assert not marker.exists()


def test_a_results_folder_with_a_space_is_refused(here: Testbed, monkeypatch):
    """ReFrame starts no job there."""
    results = here.folder / "my results"
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(results))
    fault_of(gathered, "files.space-in-name", str(results))


@pytest.mark.holds("shell")
def test_a_hostile_name_of_a_folder_never_reaches_a_shell(testbed: Testbed):
    touch = "touch $STANDIN_MARKER"
    name = f'a:b c;{touch};$({touch})`{touch}` it\'s "one" *'
    marker = testbed.folder / "marker"
    scratch = testbed.scratch / name
    scratch.mkdir()
    testbed.environment("disk", "fio", STANDIN_MARKER=marker)
    done = testbed.plumbline("run", *FIO, PLUMBLINE_SCRATCH=scratch)
    assert done.code == 0, done.output
    assert [fields["result"] for fields in done.records] == ["pass", "pass"]
    assert list(testbed.scratch.rglob("*")) == [scratch]
    assert not marker.exists()


# -- a command line that ReFrame would let through -----------------------------------------------


def test_a_check_that_its_own_setting_breaks(testbed: Testbed) -> None:
    """ReFrame drops a check that refuses a variable's value, and passes the others."""
    testbed.environment("mpich", "imb")
    done = testbed.plumbline("run", *PINGPONG, "-S", "imb_collective.num_warmups=-1")
    refused(done, "imb_collective", "num_warmups", "[check.not-loaded]")


def test_an_abbreviated_option_runs_nothing_unrecorded(testbed: Testbed) -> None:
    """ReFrame takes --ru for --run; a session that was not set up for it is refused."""
    testbed.environment("mpich", "imb")
    done = testbed.reframe("-c", "checks/", "--ru", *PINGPONG)
    assert (done.code, done.codes, done.records) == (2, ["input.wrong-option"], [])
    assert "--run" in done.err


ABBREVIATED = ("--skip-sa", "--skip-performance", "--performance-r=now-1d:now/last:/", "--list=C")


#: ReFrame's options that do something else than to run the cases.
ACTIONS = {
    option
    for options in re.findall(
        r"action_options\.add_argument\(([^)]*?)(?:metavar|nargs|action)", inspect.getsource(cli)
    )
    for option in re.findall(r"'(-[^']*)'", options)
} - {"-r", "--run", "--dry-run"}


@pytest.mark.parametrize("option", sorted({*run.REFUSED, *ABBREVIATED, *ACTIONS}))
def test_options_that_a_session_cannot_have(option: str) -> None:
    """Refused before anything starts; ReFrame accepts abbreviations."""
    named = option.partition("=")[0]
    fault_of(lambda: run.run("none", [option], strict=False), "session.refused-option", named)


@pytest.mark.parametrize(("words", "parts"), [
    (["--nosuch"], ["--nosuch"]),
    # Of plumbline run itself, and of ReFrame.
    (["--budge=6h"], ["--budge:", "--budget?"]),
    (["--dry-rum"], ["--dry-rum:", "--dry-run?"]),
    (["smoke", "nightly"], ["smoke nightly"]),
    (["-n"], ["-n/--name"]),
    (["--ma"], ["--ma", "--maxfail"]),
])  # fmt: skip
def test_a_wrong_option_is_one_line(testbed: Testbed, words: list[str], parts: list[str]) -> None:
    """Argparse would print all options of ReFrame before it, 80 lines."""
    testbed.environment("mpich", "imb")
    done = testbed.plumbline("run", *words)
    assert (done.code, done.out, done.codes) == (2, "", ["input.wrong-option"])
    assert len(done.err.splitlines()) == 1
    assert [part for part in parts if part not in done.err] == []
    assert done.sessions == [] and not [*testbed.results.glob("sessions/*")]


def test_the_options_of_a_run_are_all_suggested() -> None:
    assert {option for parameter in run_command.params for option in parameter.opts} == (
        run.OPTIONS | {"arguments"}
    )
