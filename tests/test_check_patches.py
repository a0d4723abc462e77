"""As in ``test_reframe_patches.py``: a test for each function of
``plumbline.site.check_patches``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import reframe
from plumbline.site import check_patches
from reframe.core import decorators, hooks, pipeline, runtime
from reframe.core.builtins import sanity_function
from reframe.core.exceptions import (
    ExpectedFailureError,
    PerformanceError,
    SanityError,
    SkipTestError,
    UnexpectedSuccessError,
)
from reframe.core.fixtures import FixtureSpace
from reframe.core.meta import make_test
from reframe.core.pipeline import RegressionTest
from reframe.frontend.loader import RegressionCheckLoader

# -- as checks load --------------------------------------------------------------------------


def test_wrap_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "bad.py").write_text("import reframe\n@reframe.simple_test\nclass bad: pass\n")
    for wrapped in (False, True):
        monkeypatch.setattr(RegressionCheckLoader, "load_all", RegressionCheckLoader.load_all)
        if wrapped:
            check_patches.wrap_load(lambda loader, load: [loader.load_path, load()])
        loader = RegressionCheckLoader([str(tmp_path)])
        found = [[str(tmp_path)], []] if wrapped else []
        assert loader.load_all(force=True) == found


def test_load_other_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """ReFrame ends at the first that is no Python, also below a folder of -c."""
    for name, text in (("a", "def broken(:\n"), ("b/c", "\0"), ("d", "x = 1\n")):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    loader = RegressionCheckLoader([str(tmp_path)], recurse=True)
    with pytest.raises((SyntaxError, ValueError)):
        loader.load_all(force=True)
    wrapped = RegressionCheckLoader.load_from_file
    monkeypatch.setattr(RegressionCheckLoader, "load_from_file", wrapped)
    failed = []
    check_patches.load_other_files(lambda file, error: failed.append(Path(file).name))
    assert loader.load_all(force=True) == []
    assert sorted(failed) == ["a.py", "c.py"]


#: A check with two variables of its own, and a fixture that has one of them, too.
SETTABLE = """\
import reframe as rfm
from reframe.core.builtins import fixture, variable


class build(rfm.RunOnlyRegressionTest):
    size = variable(int, value=8)
    spec = variable(str, value="gcc")


@rfm.simple_test
class one(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    size = variable(int, value=8)
    quiet = variable(int, value=0, loggable=False)
    needs = fixture(build)


@rfm.simple_test
class two(one):
    size = 16
"""


@pytest.fixture
def settable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    system = SimpleNamespace(name="here", partitions=[])
    here = SimpleNamespace(get_option=lambda _: False, system=system)
    monkeypatch.setattr(runtime, "_runtime_context", here)
    path = tmp_path / "settable.py"
    path.write_text(SETTABLE)
    return path


#: What -S sets -> what it changes in the two checks.
SET = [
    ({"size": "16"}, ({"size": "16"}, {"needs.size": "16"})),
    ({"one.size": "16"}, ({"size": "16"}, {})),
    ({"size": "08"}, ({}, {"size": "08"})),
    ({"spec": "llvm", "quiet": "1"}, ({"needs.spec": "llvm"}, {"needs.spec": "llvm"})),
    ({"two.needs.spec": "llvm"}, ({"needs.spec": "llvm"}, {"needs.spec": "llvm"})),
    ({"num_tasks": "@none", "nothing": "1"}, ({"num_tasks": "@none"}, {"num_tasks": "@none"})),
]


@pytest.mark.parametrize(("given", "expected"), SET)
def test_set_variables(settable: Path, monkeypatch: pytest.MonkeyPatch, given, expected):
    monkeypatch.setattr(decorators, "_setvars", decorators._setvars)
    monkeypatch.setattr(check_patches, "_set", {})
    check_patches.note_set_variables()
    found = RegressionCheckLoader([str(settable)], external_vars=given).load_all(force=True)
    checks = {type(check).__name__: check for check in found}
    assert tuple(check_patches.set_variables(checks[name]) for name in ("one", "two")) == expected
    # As ReFrame derives the cases of --repeat, --distribute and -P from it.
    repeated = make_test("one", (type(checks["one"]),), {})
    assert check_patches.set_variables(repeated.__new__(repeated)) == expected[0]


def test_note_set_variables(settable: Path, monkeypatch: pytest.MonkeyPatch):
    """ReFrame itself reports the same variables as unknown."""
    monkeypatch.setattr(decorators, "_setvars", decorators._setvars)
    unknown = []
    for _ in range(2):
        loader = RegressionCheckLoader([str(settable)], external_vars={"spec": "a", "one.x": "1"})
        loader.load_all(force=True)
        unknown.append([loader.unset_vars(name) for name in ("one", "two")])
        check_patches.note_set_variables()
    assert unknown == [[["spec", "x"], ["spec"]]] * 2


SKIPS = """\
import reframe
from reframe.core.builtins import fixture, run_after


@reframe.simple_test
class skips(reframe.RunOnlyRegressionTest):
    valid_systems = ["here"]
    needs = fixture(reframe.RunOnlyRegressionTest)

    @run_after("init")
    def leave(self):
        self.skip("no GPU")
"""


def test_postpone_skips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "skips.py").write_text(SKIPS)
    system = SimpleNamespace(name="here", partitions=[])
    here = SimpleNamespace(get_option=lambda _: False, system=system)
    monkeypatch.setattr(runtime, "_runtime_context", here)
    load = RegressionCheckLoader([str(tmp_path)]).load_all
    assert load(force=True) == []
    owner = pipeline if hasattr(pipeline, "attach_hooks") else hooks
    monkeypatch.setattr(owner, "attach_hooks", owner.attach_hooks)
    monkeypatch.setattr(FixtureSpace, "inject", FixtureSpace.inject)
    check_patches.postpone_skips()
    (check,) = load(force=True)
    assert not hasattr(check, "_rfm_fixture_registry")
    assert (check.valid_systems, check.valid_prog_environs) == (["here"], ["*"])
    with pytest.raises(SkipTestError, match="no GPU"):
        check.setup(None, None)


# -- of a loaded check ------------------------------------------------------------------------


def test_reference_of():
    """By the index that the check declares, which ReFrame resolves from 4.10 on; before, it has
    none. tests/plain_checks.py has checks of both kinds."""
    bounds, mark = (1, -0.1, None, "s"), SimpleNamespace(data=(2, 0, 0), message="known")
    found = {"sys:part:rate": bounds, "sys:part:time": mark}
    check = SimpleNamespace(current_partition=SimpleNamespace(fullname="sys:part"))
    for name, value in (("reference", found), ("_resolve_reference", lambda: found)):
        vars(check).pop("reference", None)
        setattr(check, name, value)
        assert check_patches.reference_of(check, "rate") == bounds
        assert check_patches.reference_of(check, "time") == mark.data
        assert check_patches.reference_of(check, "size") is None
    known = tuple(map(int, reframe.VERSION.split("."))) >= (4, 10)
    assert hasattr(RegressionTest, "_resolve_reference") == known


def test_sanity_function():
    """A derived class replaces it, also by another name."""

    class Base(RegressionTest):
        @sanity_function
        def ran(self):
            return True

    class Derived(Base):
        @sanity_function
        def ended(self):
            return True

    found = [check_patches.sanity_function(cls.__new__(cls)) for cls in (Base, Derived)]
    assert [function.__qualname__.rpartition(".")[2] for function in found] == ["ran", "ended"]
    assert {function.__module__ for function in found} == {__name__}
    assert check_patches.sanity_function(object()) is None


#: What ReFrame raises, whether its comparison counts, and what then becomes of the case.
OWN, MARKED, MET = PerformanceError("own"), ExpectedFailureError("x"), UnexpectedSuccessError("x")
NO_NUMBER = SanityError("no number")
ENDS = [
    (None, True, LookupError),
    (NO_NUMBER, True, LookupError),
    (NO_NUMBER, False, LookupError),
    (OWN, True, LookupError),
    (MARKED, True, ExpectedFailureError),
    (MET, True, UnexpectedSuccessError),
    *((raised, False, LookupError) for raised in (None, OWN, MARKED, MET)),
]


@pytest.mark.parametrize(("raised", "compared", "ends"), ENDS)
def test_judge_after_performance(monkeypatch: pytest.MonkeyPatch, raised, compared, ends):
    """Whether or not the check's own reference failed; what the judge raises takes its place."""

    def compare():
        if raised:
            raise raised

    def judge(judged: object):
        raise LookupError(judged is check)

    check = SimpleNamespace(check_performance=compare, strict_check=True)
    monkeypatch.setattr(RegressionTest, "performance", RegressionTest.performance)
    check_patches.judge_after_performance(judge, lambda judged: compared)
    with pytest.raises(ends, match="True" if ends is LookupError else "x"):
        RegressionTest.performance(check)


def test_rename():
    check = RegressionTest.__new__(RegressionTest)
    check_patches.rename(check, "1234abcdb")
    assert check.hashcode == "1234abcdb"


#: A check that prints what the functions return of each of its test cases.
NOTING = """\
import json
import reframe as rfm
from plumbline.site import check_patches
from reframe.core.builtins import parameter, run_after

@rfm.simple_test
class case(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    does = parameter(["one", "two"])

    @run_after("init")
    def note(self):
        values = [*map(str, check_patches.parameter_values(self))]
        print("noted:", json.dumps([values, check_patches.pinned_to(self)]), flush=True)
"""


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> list:
    """The values and the node of each test case that ReFrame makes, those of nodes last."""
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "checks.py").write_text(NOTING)
    command = [sys.executable, "-c", "from reframe.frontend.cli import main; main()",
               "-c", "checks.py", "--system=generic", f"--prefix={folder}", "--distribute=all",
               "-L"]  # fmt: skip
    env = os.environ | {"RFM_CONFIG_FILES": "", "TMPDIR": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    lines = (done.stdout + done.stderr).splitlines()
    return [json.loads(line.removeprefix("noted: ")) for line in lines if "noted: " in line]


def test_pinned_to(distributed: list):
    host = os.uname().nodename
    assert [node for _, node in distributed] == [None] * 2 + [["generic:default", host, [host]]] * 2


def test_parameter_values(distributed: list):
    assert [values for values, _ in distributed[:2]] == [["one"], ["two"]]
    assert all("generic:default" in values for values, _ in distributed[2:])
