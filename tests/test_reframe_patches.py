"""Each part of ReFrame that is replaced or reached for: that it is still there, that replacing it
does what it is for, and that ReFrame does not do so by itself. A test for each function of
``plumbline.site.reframe_patches``, of the same name; ``test_check_patches.py`` and
``test_job_patches.py`` have the others."""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import inspect
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import reframe
import test_check_patches
import test_job_patches
from conftest import ROOT
from plumbline.site import check_patches, job_patches, reframe_patches
from reframe.core import config, fields, modules, variables
from reframe.core.exceptions import ConfigError
from reframe.core.schedulers import local
from reframe.core.warnings import (
    ReframeDeprecationWarning,
    suppress_deprecations,
    user_deprecation_warning,
)
from reframe.frontend import cli, executors
from reframe.frontend.executors import policies

MODULES = [reframe_patches, check_patches, job_patches]
PUBLIC = {
    name: found
    for module in MODULES
    for name, found in vars(module).items()
    if inspect.isfunction(found)
    and found.__module__ == module.__name__
    and name[0] != "_"
    # What the others are made with.
    and found is not reframe_patches.replaces
}

#: Checks of one session: what each test case does is its name.
CHECKS = """\
import os
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, sanity_function

@rfm.simple_test
class case(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    does = parameter(["pass", "known", "fail", "late"])
    executable = "sleep"
    executable_opts = [os.environ["SECONDS_OF_JOB"]]
    time_limit = "60s"

    @sanity_function
    def judge(self):
        return sn.assert_eq(self.does in ("known", "fail"), False)
"""

#: A session with the patches that the command line names; its events are the lines ``event:``.
#: Whoever asks for the time of day twice learns that an hour has passed.
SESSION = """\
import sys, time
names, sys.argv = sys.argv[1].split(","), ["reframe", *sys.argv[2:]]
from plumbline.site import reframe_patches
from reframe.core.exceptions import ExpectedFailureError
from reframe.frontend import executors
from reframe.frontend.cli import main

ended = []

def event(what, does=""):
    print("event:", what, does, flush=True)

class Listener(executors.TaskEventListener):
    def note(what):
        def noted(self, task):
            ended.append(what)
            event(what, task.check.does)
        return noted
    on_task_success, on_task_failure = note("success"), note("failure")
    on_task_xfailure, on_task_abort = note("xfailure"), note("abort")
    on_task_setup = on_task_compile = on_task_compile_exit = lambda self, task: None
    on_task_run = on_task_exit = on_task_skip = on_task_xsuccess = on_task_setup

def begin(testcases):
    event("begin", len(testcases))
    return sorted(testcases, key=lambda case: "pass known fail late".index(case.check.does))

def known(task, exc_info):
    if task.check.does == "known":
        return ExpectedFailureError(f"known: {exc_info[1]}")

hours, now = [], time.time
def jumping():
    hours.append(3600)
    return now() + sum(hours)

time.time = jumping
if "watch" in names:
    reframe_patches.watch_runs(begin, Listener(), lambda: "failure" in ended)
if "clock" in names:
    reframe_patches.measure_by_monotonic_clock()
if "known" in names:
    reframe_patches.expect_known_faults(known)
main()
"""


def run(folder: Path, patches: str, *options: str, seconds: int = 0) -> list[str]:
    """What a session of four test cases prints.

    :arg seconds: that each job takes.
    """
    (folder / "checks.py").write_text(CHECKS)
    command = [sys.executable, "-c", SESSION, patches, "-c", "checks.py", "--system=generic",
               "--exec-policy=serial", f"--prefix={folder}", *options]  # fmt: skip
    env = os.environ | {"RFM_CONFIG_FILES": "", "RFM_ENABLE_SESSION_RECORDING": "n",
                        "SECONDS_OF_JOB": str(seconds), "TMPDIR": str(folder)}  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    return (done.stdout + done.stderr).splitlines()


def events(lines: list[str]) -> list[str]:
    return [line.removeprefix("event: ").strip() for line in lines if line.startswith("event: ")]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a session with all patches prints."""
    return run(tmp_path_factory.mktemp("session"), "watch,clock,known", "-r")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """ReFrame as it is, and again after the test."""
    select = inspect.unwrap(config._SiteConfig.select_subconfig)
    monkeypatch.setattr(config._SiteConfig, "select_subconfig", select)
    for module in (variables, fields):
        monkeypatch.setattr(module, "user_deprecation_warning", user_deprecation_warning)


# -- the module ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_says_why_and_until_when(name: str):
    found = dict(
        line.strip().split(": ", 1)
        for line in inspect.getdoc(PUBLIC[name]).splitlines()
        if line.startswith(("Why: ", "Differs: ", "Remove when: "))
    )
    assert [name for name in found if name != "Differs"] == ["Why", "Remove when"]


def test_refuse_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """In each version the usage has the options, and precedes the error."""
    monkeypatch.setattr(argparse.ArgumentParser, "error", argparse.ArgumentParser.error)
    monkeypatch.setattr(sys, "argv", ["reframe", "-r", "--nosuch"])
    with pytest.raises(SystemExit):
        cli.main()
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("usage: ") and last.endswith("--nosuch")
    found = []
    with pytest.raises(SystemExit, match="5"):
        reframe_patches.refuse_options(lambda *given: found.append(given) or sys.exit(5))
        cli.main()
    ((message, known),) = found
    assert message.endswith("--nosuch") and known > {"--run", "--mode", "--max-retries"}


@pytest.mark.parametrize("position", [0, 1, 2])
def test_load_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, position: int):
    """Wherever it is named, and once; ReFrame itself lets what it loads later win."""
    names = ["a", "b"]
    names.insert(position, "own")
    files = [tmp_path / f"{name}.yaml" for name in names]
    for name, file in zip(names, files, strict=True):
        file.write_text(
            f"systems: [{{name: {name}, hostnames: ['.*'], partitions: []}}]\n"
            f"general: [{{git_timeout: {len(name)}, {name}: 1}}]\n"
        )

    def loaded() -> tuple[list[str], int]:
        found = config.load_config(*map(str, [*files, tmp_path / "own.yaml"]))
        (general,) = found["general"]
        return [system["name"] for system in found["systems"]], general["git_timeout"]

    assert loaded() == (["own", *reversed(names), "generic"], 3)
    monkeypatch.setattr(config._SiteConfig, "update_config", config._SiteConfig.update_config)
    reframe_patches.load_first(tmp_path / "own.yaml")
    assert loaded() == (["b", "a", "own", "generic"], 1)


@pytest.mark.parametrize(
    ("own", "expected"), [("", "session"), ("prefix: mine,", "mine"), ("stagedir: x,", "session")]
)
def test_keep_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str, expected: str):
    """Of any file's systems; a site that chose a folder keeps it."""
    file, folder = tmp_path / "site.yaml", tmp_path / "session"
    file.write_text(
        f"systems: [{{name: mine, {own} hostnames: ['.*'], partitions: [{{name: node, "
        f"scheduler: local, launcher: local, environs: [builtin]}}]}}]\n"
    )
    for owner, name in ((config._SiteConfig, "validate"), (reframe.core.logging, "_create_logger")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    reframe_patches.keep_in(folder)
    found = config.load_config(str(file))
    found.validate()
    found.select_subconfig("mine")
    assert Path(found.get("systems/0/prefix")).name == expected
    # As the command line and its variables do.
    found.add_sticky_option("systems/prefix", "asked")
    assert found.get("systems/0/prefix") == "asked"


@pytest.mark.parametrize("name", PUBLIC)
def test_has_a_test(name: str):
    tests = globals() | vars(test_check_patches) | vars(test_job_patches)
    assert callable(tests.get(f"test_{name}"))


#: Names with an underscore that are documented: of named tuples and of the standard library.
DOCUMENTED = {"_replace", "_asdict", "_fields", "_make", "_exit"}


def reaches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module reads or sets a private name that is not its own or the package's, and where
    it replaces a name of a module or class of ReFrame."""
    of_package, of_reframe, own = set(), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            for name in node.names:
                root = (module or name.name).split(".")[0]
                bound = name.asname or name.name.split(".")[0]
                of_package |= {bound} if root == "plumbline" else set()
                of_reframe |= {bound} if root == "reframe" else set()
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own |= {node.attr} if ast.unparse(node.value) == "self" else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            target, name, replaced = node.args[0], ast.unparse(node.args[1]), True
        elif isinstance(node, ast.Attribute):
            target, name = node.value, node.attr
            replaced = not isinstance(node.ctx, ast.Load)
        else:
            continue
        root = ast.unparse(target).split(".")[0].split("(")[0]
        private = name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED
        known = root in of_package or (root in ("self", "cls") and name in own)
        if (private and not known) or (replaced and root in of_reframe):
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(("source", "found"), [
    ("job._state = 1", 1),
    ("print(job._nodespec)", 1),
    ("self._site_config = {}\nother._site_config", 1),
    ("from reframe.frontend import executors\nexecutors.Runner.runall = print", 1),
    ("from reframe.core.schedulers.lsf import Lsf\nsetattr(Lsf, 'poll', print)", 1),
    ("import reframe.core.variables\nreframe.core.variables.warn = print", 1),
    ("from plumbline.history import running\nrunning._lock(1)", 0),
    ("def _own(self): self._x = self._own\nnamed._replace(at=1)", 0),
])  # fmt: skip
def test_what_counts_as_reaching(source: str, found: int):
    assert len([*reaches(ast.parse(source))]) == found


def test_nothing_else_reaches_into_reframe():
    files = [*ROOT.glob("reframe/**/*.py"), *ROOT.glob("checks/*.py")]
    allowed = {Path(module.__file__) for module in MODULES}
    assert len(files) > 100 and allowed < {*files}
    found = {
        f"{path.relative_to(ROOT)}:{line}": text
        for path in files
        if path not in allowed
        for line, text in reaches(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == {}


# -- when the configuration loads ------------------------------------------------------------


def test_accept_later_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Only the two versions that refuse them need it."""
    partition = {"name": "cpu", "scheduler": "local", "launcher": "local", "environs": ["gnu"],
                 "features": ["one-core"]}  # fmt: skip
    system = {"name": "one", "hostnames": ["one"], "modules_system": "envmod",
              "partitions": [partition]}  # fmt: skip
    site = {"systems": [system], "environments": [{"name": "gnu", "features": ["off-node"]}]}
    path = tmp_path / "site.json"
    path.write_text(json.dumps(site))
    monkeypatch.setattr(config._SiteConfig, "validate", config._SiteConfig.validate)
    monkeypatch.setattr(modules.ModulesSystem, "create", modules.ModulesSystem.create)
    loaded = config.load_config(str(path))
    refused = reframe.VERSION in ("4.9.3", "4.10.1")
    with pytest.raises(ConfigError) if refused else contextlib.nullcontext():
        loaded.validate()
    reframe_patches.accept_later_names()
    for _ in range(2):
        loaded.validate()
    created = modules.ModulesSystem.create("envmod", validate=False)
    assert created.name == ("tmod4" if reframe.VERSION == "4.9.3" else "envmod")


@pytest.mark.parametrize("changed", [{"name": "gcc-13.2"}, {"features": ["1_node"]}])
def test_which_versions_refuse_names(tmp_path: Path, changed: dict):
    """As docs/own-configuration.md has it."""
    path = tmp_path / "site.json"
    path.write_text(json.dumps({"systems": [], "environments": [{"name": "gnu"} | changed]}))
    accepted = reframe.VERSION in ("4.9.3", "4.10.0")
    with contextlib.nullcontext() if accepted else pytest.raises(ConfigError):
        config.load_config(str(path)).validate()


def test_schema_with_later_names():
    """For the versions that need no change, none."""
    text = Path(reframe.__file__).with_name("schemas").joinpath("config.json").read_text()
    same = reframe_patches.schema_with_later_names(json.loads(text)) == json.loads(text)
    assert same == (reframe.VERSION not in ("4.9.3", "4.10.1"))


def test_warn_without_stack_walks(plain, monkeypatch: pytest.MonkeyPatch):
    class Holder:
        old = fields.DeprecatedField(fields.TypedField(int), "old")

    walks, walk = [], inspect.stack
    monkeypatch.setattr(inspect, "stack", lambda *given: walks.append(1) or walk(*given))
    with suppress_deprecations():
        Holder().old = 1
    assert len(walks) == 1, "ReFrame walks no stack for a warning that is suppressed"
    reframe_patches.warn_without_stack_walks()
    with suppress_deprecations(), warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("ignore", ReframeDeprecationWarning)
        Holder().old = 2
    assert len(walks) == 1 and not reported
    with pytest.warns(ReframeDeprecationWarning, match="old"):
        Holder().old = 3
    for module in (variables, fields):
        assert inspect.getsource(module).count("user_deprecation_warning(") > 0


@pytest.mark.holds("linear")
def test_select_without_copies(plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a run's commands has ReFrame read the configuration of all partitions."""
    copied = []

    def deepcopy(found, *args):
        if isinstance(found, dict) and "systems" in found:
            copied.append(sum(len(system["partitions"]) for system in found["systems"]))
        return copy.deepcopy(found, *args)

    monkeypatch.setattr(config, "copy", SimpleNamespace(**vars(copy) | {"deepcopy": deepcopy}))

    def selected(count: int) -> dict:
        partition = {"scheduler": "local", "launcher": "local", "environs": ["gnu"]}
        site = {
            "systems": [
                {"name": name, "hostnames": ["nowhere"],
                 "partitions": [partition | {"name": f"{name}{n}"} for n in range(count)]}
                for name in ("alpha", "beta")
            ],
            "environments": [{"name": "gnu"}],
            "logging": [{"handlers$": [{"type": "stream"}], "handlers": [{"type": "stream"}]}],
        }  # fmt: skip
        path = tmp_path / f"settings{count}.py"
        path.write_text(f"site_configuration = {site}")
        loaded = config.load_config(str(path))
        copied.clear()
        for number in range(count):
            loaded.select_subconfig(f"alpha:alpha{number}")
        loaded.select_subconfig("beta")
        return loaded._subconfigs

    found = selected(8)
    whole = copied[0]
    assert whole >= 16 and copied == [whole] * 9, "ReFrame copies less than the whole by itself"
    reframe_patches.select_without_copies()
    assert selected(8) == found
    assert copied == [*[1] * 8, whole]
    assert [len(one["systems"][0]["partitions"]) for one in found.values()] == [*[1] * 8, 8]


# -- a session -------------------------------------------------------------------------------


def test_watch_runs(session: list[str]):
    """All cases are reported, in the order that was asked for, until the session has expired."""
    first, *ended = events(session)
    assert first == "begin 4"
    assert ended[:3] == ["success pass", "xfailure known", "failure fail"]
    assert not any("late" in line for line in ended if not line.startswith("abort"))
    # The other policy starts cases while others run, so that where it stops is chance.
    assert "self.timeout_expired()" in inspect.getsource(policies.AsynchronousExecutionPolicy)


def test_a_duration_ends_a_session(tmp_path: Path):
    """ReFrame repeats the cases; each look at the clock is an hour here."""
    found = run(tmp_path, "watch,clock", "-r", "-n", "%does=pass", "--duration=500h")
    assert events(found).count("success pass") > 1


def test_measure_by_monotonic_clock(
    session: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert not any("job timed out" in line for line in session)
    assert all("time.time()" in inspect.getsource(module) for module in (policies, local))
    for module in (policies, local):
        monkeypatch.setattr(module, "time", time)
    reframe_patches.measure_by_monotonic_clock()
    for module in (policies, local):
        assert abs(module.time.time() - time.time()) < 60, "perf logs have the time of submission"
    alone = run(tmp_path, "watch", "-r", "-n", "%does=pass", seconds=60)
    assert any("job timed out" in line for line in alone), "ReFrame takes no jump of the clock"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_end_on_signals(monkeypatch: pytest.MonkeyPatch, number: int):
    """One that arrives while a log is written."""

    class Stream(io.StringIO):
        def write(self, _: str) -> int:
            os.kill(os.getpid(), number)
            return 0

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(executors, "_force_exit", inspect.unwrap(executors._force_exit))
    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler = logging.StreamHandler(Stream())
    try:
        executors.Runner(SimpleNamespace(), SimpleNamespace())
        handler.handle(logging.makeLogRecord({}))
        reframe_patches.end_on_signals()
        executors.Runner(SimpleNamespace(), SimpleNamespace())
        with pytest.raises(KeyboardInterrupt, match=str(int(number))):
            handler.handle(logging.makeLogRecord({}))
    finally:
        for one, way in before.items():
            signal.signal(one, way)


def test_expect_known_faults(session: list[str]):
    assert "xfailure known" in events(session)
    assert any("1 failure(s), 1 expected failure(s)" in line for line in session)
