"""Benchmarks that Plumbline does not know: a site's own check, with its parser and its metrics."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from conftest import Done, Testbed, empty_caches
from plumbline.check import declaration, needs
from plumbline.core.errors import Fault
from plumbline.reference.registers import MetricEntry
from plumbline.reference.tables import declare, load
from test_waivers import waive, waiver

CHECKS = """
import os
import re

import reframe as rfm
from plumbline.check.benchmark import Benchmark, Figure
from plumbline.parse import Fom, Output, ParseError
from reframe.core.builtins import parameter


class Own(Benchmark):
    benchmark = "mybench"
    program = "mybench"
    placement = parameter(["all-cores"])
    tags = {"smoke"}
    num_samples = 2
    conditions = {"kind": "random"}  # which no register has
    foms = {
        "updates": {"unit": "Mupdate/s", "class": "rate"},
        "score": {"unit": "points", "class": "rate"},
        "delay": {"unit": "us", "class": "time"},
    }

    def prepare(self):
        self.executable_opts = [os.environ.get("UPDATES", "2.5"), "812"]

    def parse(self, text):
        found = re.search(r"updates (\\S+) G/s, score (\\S+), delay (\\S+)", text)
        if not found:
            raise ParseError("no line of updates")
        updates, score, delay = map(float, found.groups())
        return Output((
            Fom("updates", updates, "Gupdate/s"), Fom("score", score, "points"),
            Fom("delay", delay, "us"), Fom("beside", 1, "one"),
        ))
"""

#: Checks whose output or parser is wrong.
WRONG = """

@rfm.simple_test
class raises(Own):
    def parse(self, text):
        return text.no_such_method()


@rfm.simple_test
class returns(Own):
    def parse(self, text):
        return {"updates": 1}


@rfm.simple_test
class texts(Own):
    def parse(self, text):
        return Output((Fom("updates", "2.5", "Gupdate/s"),))


@rfm.simple_test
class nothing(Own):
    def parse(self, text):
        return Output(())


@rfm.simple_test
class refuses(Own):
    def parse(self, text):
        raise ParseError("it is garbled", code="output.other-inputs")


@rfm.simple_test
class misses(Own):
    def figures(self):
        return [*super().figures(), Figure("updates", 8)]


@rfm.simple_test
class units(Own):
    def parse(self, text):
        return Output((Fom("updates", 2.5, "MB/s"),))
"""

GOOD = "\n\n@rfm.simple_test\nclass mybench(Own):\n    pass\n"

PROGRAM = '#!/bin/sh\necho "updates $1 G/s, score $2, delay 3.5"\n'


class Own:
    """A test system with a program that no shipped check runs, and a folder of checks for it."""

    def __init__(self, testbed: Testbed, text: str, feature: str = "mybench"):
        self.testbed, self.checks = testbed, testbed.folder / "mychecks"
        self.checks.mkdir()
        (self.checks / "own.py").write_text(text)
        program = testbed.folder / "bin" / "mybench"
        program.parent.mkdir()
        program.write_text(PROGRAM)
        program.chmod(0o755)
        testbed.env["PATH"] = f"{program.parent}:{testbed.env['PATH']}"
        testbed.environments.append(
            {"name": "base", "features": [feature], "extras": {"provider": "path"},
             "target_systems": [testbed.name]}
        )  # fmt: skip
        testbed.write()

    def run(self, *options: object, **env: object) -> Done:
        return self.testbed.plumbline("run", "-c", self.checks, *options, **env)


@pytest.fixture(scope="module")
def own(make_testbed: Callable[..., Testbed]) -> Own:
    return Own(make_testbed("own"), CHECKS + GOOD)


@pytest.fixture(scope="module")
def history(own: Own) -> list[Done]:
    """Three sessions, two of plain ReFrame, and a baseline of them."""
    done = [own.run(), *(own.testbed.reframe("-c", own.checks, "-r") for _ in range(2))]
    assert [each.code for each in done] == [0, 0, 0], done[0].output
    made = own.testbed.asked("baseline", "own")
    assert made.code == 0, made.output
    return done


#: A plain check without a tag, with a figure.
PLAIN = """
import reframe as rfm


@rfm.simple_test
class plain(rfm.RunOnlyRegressionTest):
    valid_systems, valid_prog_environs, executable = ["*"], ["*"], "true"

    @sanity_function
    def ran(self):
        return True

    @performance_function("MB/s")
    def my_rate(self):
        return 1.0
"""


def test_lint_knows_its_metrics_in_waivers(own: Own, tmp_path: Path):
    """And those of a plain check, before either has a baseline; not a misspelt one."""
    (tmp_path / "plain.py").write_text(PLAIN)
    metrics = ("score", "my_rate", "write_bandwidth", "my_raet", "write_bandwitdh")
    path = waive(own.testbed, *(waiver(name, system="own", metric=name) for name in metrics))
    done = own.testbed.asked("lint", "-c", own.checks, "-c", tmp_path)
    path.unlink()
    assert done.code == 1 and done.codes.count("waiver.matches-nothing") == 2, done.output
    lines = [line for line in done.err.splitlines() if line.endswith("[waiver.matches-nothing]")]
    assert [line.split(": ")[2] for line in lines] == ["my_raet", "write_bandwitdh"]


def test_its_figures_are_recorded(history: list[Done]):
    """In the unit of its declaration, with the direction of their class."""
    fields = history[0].record("mybench")
    assert history[0].code == 0, history[0].output
    assert (fields["result"], fields["benchmark"]) == ("pass", "mybench")
    assert len(fields["tasks"]) == 1 and len(fields["seconds"]["samples"]) == 3
    found = {
        fom["metric"]: (fom["samples"], fom["unit"], fom["better"], fom["tolerance"])
        for fom in fields["foms"]
    }
    assert found == {
        "updates": ([2500.0] * 2, "Mupdate/s", "higher", "rate"),
        "score": ([812.0] * 2, "points", "higher", "rate"),
        "delay": ([3.5] * 2, "us", "lower", "time"),
    }


def test_without_a_headline_its_first_figure_is_shown(history: list[Done]):
    shown = [fom["metric"] for fom in history[0].record("mybench")["foms"] if fom["headline"]]
    assert shown == ["updates"]
    assert re.search(r"^mybench .* updates +2500 Mupdate/s ", history[0].out, re.M)


def test_its_baseline_needs_no_check(own: Own, history: list[Done]):
    """Its rows have the class where their unit does not show it, so that commands which load no
    check, or other checks, can read them."""
    with (own.testbed.reference / "own.csv").open(newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    assert {metric: row["conditions"] for metric, row in rows.items()} == {
        "updates": "kind=random;partition=node",
        "score": "class=rate;kind=random;partition=node",
        "delay": "class=time;kind=random;partition=node",
    }
    why = own.testbed.asked("refs", "--why", rows["score"]["id"])
    assert why.code == 0 and "class rate" in why.out, why.output


@pytest.mark.parametrize(("updates", "code"), [(2.5, 0), (2.3, 1)])
def test_its_baseline_decides(own: Own, history: list[Done], updates: float, code: int):
    done = own.run(UPDATES=updates)
    assert done.code == code, done.output
    fom = next(fom for fom in done.record("mybench")["foms"] if fom["metric"] == "updates")
    assert (fom["lower"], fom["verdict"]) == (2375, "fail" if code else "pass")


def test_lint_knows_its_rows_once_its_check_is_loaded(own: Own, history: list[Done]):
    """Without it, a row may have a misspelt name: it asserts nothing."""
    path = own.testbed.reference / "own.csv"
    before = path.read_text()
    path.write_text(before.replace(",mybench,score,", ",mybench,scoer,"))
    done = own.testbed.asked("lint", "-c", own.checks)
    path.write_text(before)
    (fault,) = done.err.splitlines()
    assert done.code == 1 and "no loaded check has mybench scoer" in fault


def test_lint_lists_rows_of_a_check_that_is_not_loaded(
    own: Own, history: list[Done], tmp_path: Path
):
    """`plumbline baseline` wrote them, so no name is misspelt."""
    (tmp_path / "plain.py").write_text(PLAIN)
    written = own.testbed.systems / "inventory" / "own.json"
    written.parent.mkdir(exist_ok=True)
    written.write_text('{"references": {}, "cases": {}, "full": {}}')
    done = own.testbed.asked("lint", "-c", tmp_path)
    written.unlink()
    (line,) = (line for line in done.out.splitlines() if line.endswith("[reference.not-loaded]"))
    assert "own.csv" in line and "mybench" in line and " 3 references " in line
    # The command that adds the plain one loads it.
    (fault,) = done.err.splitlines()
    assert "plain @own:node+base" in fault and f" -c {tmp_path} --accept`" in fault


@pytest.fixture(scope="module")
def wrong(make_testbed: Callable[..., Testbed]) -> Done:
    return Own(make_testbed("wrong"), CHECKS + WRONG).run()


#: Check -> reason code of its case, which is invalid.
CODES = {
    "raises": "check.parser-failed",
    "returns": "check.parser-failed",
    "texts": "check.parser-failed",
    "nothing": "output.not-parsed",
    "refuses": "output.other-inputs",
    "misses": "output.figure-missing",
    "units": "output.unit",
}


@pytest.mark.parametrize("check", CODES)
def test_an_output_that_is_not_read_is_invalid(wrong: Done, check: str):
    fields = wrong.record(check)
    assert (fields["result"], fields["code"], fields["foms"]) == ("invalid", CODES[check], [])


def test_the_line_of_a_wrong_parser_is_named(wrong: Done):
    line = CHECKS.count("\n") + WRONG[: WRONG.index("no_such_method")].count("\n") + 1
    assert f"own.py:{line})" in wrong.record("raises")["reason"]


# -- what fits no environment --------------------------------------------------------------------

#: Checks of which the system has no test case, and one that is meant for another system.
MISFITS = (
    GOOD
    + """

@rfm.simple_test
class lacking(Own):
    environ_features = ["cuda", "hip gpu"]


@rfm.simple_test
class nowhere(Own):
    placement = parameter(["off-node"])


@rfm.simple_test
class elsewhere(Own):
    valid_systems = ["frontier"]


@rfm.simple_test
class featured(Own):
    valid_systems = ["+several-numa-domains"]


@rfm.simple_test
class here(Own):
    valid_systems, valid_prog_environs = ["misfit:node"], ["base"]


@rfm.simple_test
class plain(rfm.RunOnlyRegressionTest):
    valid_systems, valid_prog_environs = ["*"], ["nosuch"]
"""
)

#: What each check lacks, with its code.
LACKING = {
    "lacking": ("cuda:", "check.no-environment"),
    "nowhere": ("off-node", "check.no-partition"),
}


@pytest.fixture(scope="module")
def misfit(make_testbed: Callable[..., Testbed]) -> Own:
    return Own(make_testbed("misfit"), CHECKS + MISFITS)


def lacks(text: str) -> dict[str, str]:
    """Check -> reason code of each line about a check without a test case."""
    return dict(re.findall(r"check (\w+): .* \[([a-z.-]+)\]$", text, re.M))


def test_what_fits_nowhere_fails_a_session(misfit: Own):
    done = misfit.run()
    assert done.code == 1
    assert {fields["check"].split()[0] for fields in done.records} == {"mybench", "here"}
    assert all(fields["result"] == "pass" for fields in done.records)
    faults = lacks("\n".join(done.end["faults"]))
    assert faults == {check: code for check, (_, code) in LACKING.items()}
    for fault in done.end["faults"]:
        assert LACKING[fault.split()[1].rstrip(":")][0] in fault


def test_what_is_not_asked_for_does_not(misfit: Own):
    assert misfit.run("-n", "mybench").code == 0


@pytest.mark.parametrize("check", ["lacking", "plain", "elsewhere", "featured"])
def test_nothing_selected(misfit: Own, check: str):
    """ReFrame reports 0 checks, and exits with 0."""
    done = misfit.run("-n", check)
    assert (done.code, done.records) == (2, [])
    assert [*lacks(done.err)] == [check] and done.codes[-1] == "session.nothing-selected"
    # A feature that is detected is what it needs, not the name of the system.
    assert ("several-numa-domains" in done.err) == (check == "featured")


def test_doctor_lists_it(misfit: Own):
    found = misfit.testbed.asked("doctor", "-c", misfit.checks, "--format=json")
    assert found.code == 0
    doctor = json.loads(found.out)
    # What is missing where, what there is, and which file to edit.
    (nowhere,) = [line for line in doctor["misfits"] if "check nowhere: " in line]
    for part in ("node lacks off-node)", "all-cores", "systems/misfit.yaml", "`valid_systems`"):
        assert part in nowhere
    assert lacks("\n".join(doctor["misfits"])).keys() == LACKING.keys()
    assert doctor["programs"]["mybench (path)"].endswith("/bin/mybench")


def test_lint_has_it_as_faults(misfit: Own):
    done = misfit.testbed.asked("lint", "-c", misfit.checks)
    assert done.code == 1
    assert lacks(done.err) == {check: code for check, (_, code) in LACKING.items()}
    # An inventory would lack these cases, and nobody would notice.
    assert done.codes[0] == "system.inventory-not-written"
    assert f"`plumbline lint --system misfit -c {misfit.checks} --accept`" in done.out
    assert not (misfit.testbed.systems / "inventory").exists()
    # Without the folder, no check needs the feature, and the system has no case of another one.
    done = misfit.testbed.asked("lint")
    assert done.code == 1 and "'mybench'" in done.err and "check.no-environment" in done.codes


def test_a_pattern_of_names():
    assert needs.is_named("imb_p2p", ["imb_p2p%operation=PingPong"])
    assert not needs.is_named("imb_p2p", ["p2p", "imb_p2px", "imb(_"])


# -- what is declared ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("foms", "others", "part"),
    [
        ({"class": "rate"}, {}, "foms: updates: unit: is missing"),
        ({"unit": "s", "class": "raet"}, {}, " rate"),
        ({"unit": "s", "class": "time", "worse": 1}, {}, "worse"),
        ({"unit": "s", "class": "time", "same_as": ["osu/nosuch"]}, {}, "osu/nosuch"),
        ({"unit": "s", "class": "time"}, {"headline": ["updates_8", "updaets"]}, "updates"),
        # ReFrame's own, which would be ignored.
        ({"unit": "s", "class": "time"}, {"reference": {"*": {"updates": (1, 0, None)}}}, "`foms`"),
        ({"unit": "s", "class": "time"}, {"require_reference": True}, "require_reference"),
        ({"unit": "s", "class": "time"}, {"perf_variables": {"extra": 1}}, "perf_variables"),
        # A job's script or task.sh overrules it.
        ({"unit": "s", "class": "time"}, {"env_vars": {"OMP_NUM_THREADS": 4}}, "OMP_NUM_THREADS"),
    ],
)
def test_a_wrong_declaration(foms: dict, others: dict, part: str):
    class check:
        """What is declared, and nothing else."""

        benchmark, placement, tags = "mybench", "all-cores", frozenset(["smoke"])
        nodes = tasks_per_node = num_samples = num_warmups = 1
        conditions: ClassVar = {}
        headline: ClassVar = []
        parse = None

    check.foms = {"updates": foms}
    for name, value in others.items():
        setattr(check, name, value)
    empty_caches()
    with pytest.raises(Fault) as refusal:
        declaration.validate(check())
    empty_caches()
    assert refusal.value.code == "check.wrong-declaration" and part in str(refusal.value)


#: Checks that set a variable once their tasks are placed.
LATE = """

@rfm.simple_test
class late(Own):
    def prepare(self):
        super().prepare()
        self.env_vars["KMP_AFFINITY"] = "compact"


@rfm.simple_test
class tuned(Own):
    def prepare(self):
        super().prepare()
        self.env_vars["KMP_BLOCKTIME"] = "0"
"""


def test_a_variable_that_prepare_sets_and_the_program_would_not_get(testbed: Testbed):
    done = Own(testbed, CHECKS + LATE).run()
    found = {name: done.record(name) for name in ("late", "tuned")}
    assert {name: fields["code"] for name, fields in found.items()} == {
        "late": "check.wrong-declaration", "tuned": None,
    }  # fmt: skip
    assert "KMP_AFFINITY" in found["late"]["reason"] and found["tuned"]["result"] == "pass"


def test_a_check_without_a_parser(testbed: Testbed):
    done = Own(testbed, CHECKS.replace("def parse(", "def prase(") + GOOD).run()
    assert (done.code, done.records) == (2, []) and "parse(self, text)" in done.err
    assert {*done.codes} == {"check.not-loaded"}


#: A check with a sanity function of its own, in place of that which reads the samples.
SANE = """

@rfm.simple_test
class sane(Own):
    @sanity_function
    def ended(self):
        return True
"""


def test_a_check_with_its_own_sanity_function(testbed: Testbed):
    text = CHECKS.replace("import parameter", "import parameter, sanity_function")
    done = Own(testbed, text + SANE).run()
    assert (done.code, done.records) == (2, []) and "@sanity_function ended" in done.err
    assert {*done.codes} == {"check.not-loaded"}


def test_two_checks_declare_the_same():
    tables = load(Path(__file__).parents[1] / "reference")
    rate = MetricEntry.model_validate({"unit": "Mupdate/s", "class": "rate"})
    assert declare(tables, "mybench", "updates", rate) == []
    assert declare(tables, "mybench", "updates", rate) == []
    assert len(declare(tables, "mybench", "updates", rate.model_copy(update={"unit": "s"}))) == 1
    assert len(declare(tables, "osu", "latency", rate)) == 1


def test_a_row_in_another_unit_than_declared(tmp_path: Path):
    """It is found when the check is loaded; before that, its own unit counts."""
    tables = load(Path(__file__).parents[1] / "reference")
    row = next(iter(tables.rows.values())).model_copy(
        update={"id": "own", "source": "site", "benchmark": "mybench", "metric": "updates",
                "unit": "MB/s"}
    )  # fmt: skip
    tables.rows["own"], tables.where["own"] = row, "own.csv:2"
    tables.register("mybench", "updates", "MB/s", "bandwidth")
    assert [fault.split(":")[0] for fault in tables.undeclared()] == ["own.csv"]
    rate = MetricEntry.model_validate({"unit": "Mupdate/s", "class": "rate"})
    (fault, *_) = declare(tables, "mybench", "updates", rate)
    assert fault.startswith("own.csv:2: row own: column unit:")
    assert tables.undeclared() == []
