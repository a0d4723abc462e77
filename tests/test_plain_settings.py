"""What ``-S`` sets in a plain ReFrame check is a condition of its figures."""

from __future__ import annotations

import csv
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from conftest import Done, Testbed
from plain_checks import PRINTED
from plumbline.check import plain
from plumbline.history.history import History
from plumbline.history.series import Selection
from plumbline.reference.row import SETVAR
from plumbline.site import check_patches

#: The rate is the size. A fixture has a variable, too.
SIZED = (
    PRINTED
    + """
from reframe.core.builtins import fixture, variable


class build(rfm.RunOnlyRegressionTest):
    executable = "true"
    spec = variable(str, value="gcc")

    @sanity_function
    def built(self):
        return True


@rfm.simple_test
class sized(Printed):
    size = variable(int, value=100)
    verbose = variable(int, value=0, loggable=False)
    built = fixture(build, scope="session")

    @run_before("run")
    def print_size(self):
        self.executable_opts = [f"rate {self.size} time 3"]
"""
)

#: A mode of the site's own.
MODES = """
site_configuration = {
    "modes": [{"name": "large", "target_systems": ["*"], "options": ["-S size=200"]}],
}
"""


class Sized:
    """A test system with a baseline of ``sized`` in its own size, and in another one."""

    def __init__(self, testbed: Testbed):
        testbed.environment("base", "imb")
        (testbed.folder / "sized.py").write_text(SIZED)
        (testbed.folder / "modes.py").write_text(MODES)
        self.testbed = testbed
        # Those of the other size are not in the way of those of its own, whichever is newer.
        self.plain = [self.session() for _ in range(3)]
        self.large = [self.session("-S", "sized.size=200") for _ in range(2)]
        self.large.append(self.session("-C", "modes.py", "--mode=large"))
        self.made = testbed.plumbline("baseline", testbed.name, "--format=json")

    def session(self, *options: str) -> Done:
        return self.testbed.plumbline("run", "-c", "sized.py", *options)


@pytest.fixture(scope="module")
def sized(make_testbed: Callable[..., Testbed]) -> Sized:
    return Sized(make_testbed("sized"))


def rate_of(done: Done) -> dict:
    (fields,) = (fields for fields in done.records if fields["check"] == "sized")
    return next(fom for fom in fields["foms"] if fom["metric"] == "rate")


def conditions_of(done: Done) -> dict[str, str]:
    (fields,) = (fields for fields in done.records if fields["check"] == "sized")
    return fields["conditions"]


def test_a_record_has_what_was_set(sized: Sized):
    """By the command line, for all checks or for one, or by a mode."""
    assert [conditions_of(done) for done in sized.plain] == [{}] * 3
    assert [conditions_of(done) for done in sized.large] == [{f"{SETVAR}size": "200"}] * 3


def test_each_size_has_its_own_series(sized: Sized):
    with History(sized.testbed.results) as history:
        found = history.series(Selection(metric="rate"))
    assert {each.key.conditions: {*each.values} for each in found} == {
        "": {100.0},
        f"{SETVAR}size=200": {200.0},
    }


def test_each_size_has_its_own_baseline(sized: Sized):
    assert sized.made.code == 0, sized.made.output
    with (sized.testbed.reference / "sized.csv").open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file) if row["metric"] == "rate"}
    assert {name: (row["conditions"], float(row["value"])) for name, row in rows.items()} == {
        "sized-node-base-sized-rate": ("partition=node", 100.0),
        "sized-node-base-sized-size=200-rate": (f"partition=node;{SETVAR}size=200", 200.0),
    }


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ([], "sized-node-base-sized-rate"),
        (["-S", "size=200"], "sized-node-base-sized-size=200-rate"),
        # Its default.
        (["-S", "size=100"], "sized-node-base-sized-rate"),
        # What measures nothing else.
        (["-S", "tags=nightly", "-S", "verbose=1"], "sized-node-base-sized-rate"),
        (["-S", "size=300"], None),
        (["-S", "spec=clang"], None),
    ],
)
def test_a_baseline_is_of_one_size(sized: Sized, options: list[str], reference: str | None):
    done = sized.session(*options)
    assert done.code == 0, done.output
    fom = rate_of(done)
    verdict = "pass" if reference else "not-asserted"
    assert (fom["reference"], fom["verdict"]) == (reference, verdict)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"size": "200", "num_tasks": "4"}, {"size": "200", "num_tasks": "4"}),
        ({"built.spec": "osu@7  %gcc"}, {"built.spec": "osu@7 %gcc"}),
        # A cell of a table separates conditions by semicolons, and has no empty ones.
        ({"prerun_cmds": "a; b", "modules": ""}, {"prerun_cmds": "a, b", "modules": "''"}),
        ({"time_limit": "1h", "built.build_locally": "0", "valid_systems": "*"}, {}),
    ],
)
def test_what_is_a_condition(monkeypatch: pytest.MonkeyPatch, given: dict, expected: dict):
    monkeypatch.setattr(check_patches, "set_variables", lambda check: given)
    found = plain.conditions(SimpleNamespace())
    assert found == {f"{SETVAR}{name}": value for name, value in expected.items()}
