"""A session from its plan to its closing table: records, inventory, strictness, exit codes."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import socket
import statistics
from collections.abc import Callable

import pytest
import records
from conftest import CHECKS, ROOT, STANDINS, Done, Testbed, refused
from own_machine import plain_path, two_cores
from plumbline.check import outcomes, record
from plumbline.session import run, summary
from plumbline.site import configuration
from test_waivers import waive, waiver

OUTPUTS = STANDINS / "outputs"
PINGPONG = ["-n", "imb_p2p.*PingPong", "-S", "num_samples=1", "-S", "num_warmups=0"]
FIO = ["-n", "fio", "-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]

#: Latency and bandwidth of 8 bytes in each sample; the first one warms up.
PRINTED = [("99.00", "0.08"), ("7.20", "1.11"), ("8.00", "1.00"), ("7.60", "1.05")]
HOSTILE = {"note": "a}b\"c 'd $(touch x)", "window": "2026-11"}


@pytest.fixture(scope="module")
def measured(make_testbed: Callable[..., Testbed]) -> Done:
    """One PingPong: a warm-up and three samples, each with other figures."""
    testbed = make_testbed()
    folder = testbed.folder / "outputs"
    folder.mkdir()
    good = (OUTPUTS / "PingPong.out").read_text()
    for sample, (latency, bandwidth) in enumerate(PRINTED):
        row = f"            8         1000{latency:>13}{bandwidth:>13}"
        text, count = re.subn(r"^ +8 +1000 .*$", row, good, flags=re.M)
        assert count == 1
        (folder / f"PingPong.{sample}.out").write_text(text)
    testbed.environment("mpich", "imb", folder)
    extras = ",".join(f"{key}={value}" for key, value in HOSTILE.items())
    samples = ["-S", "num_samples=3", "-S", "num_warmups=1"]
    # As in a shell that srun started, which has a rank of its own.
    ranks = dict.fromkeys(("PMIX_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"), "0")
    done = testbed.plumbline(
        "run", "-n", "PingPong", *samples, f"--session-extras={extras}", **ranks
    )
    assert done.code == 0, done.output
    return done


def test_a_session_leaves_one_record_for_its_case(measured: Done):
    (fields,) = measured.records
    cpus = [str(cpu) for cpu in two_cores()]
    host = socket.gethostname()
    # Neither the launcher nor the binding has GPUs.
    nothing = {"given": "", "gpus": "", "devices": ""}
    expected = {
        "schema": 5,
        "warnings": [],
        "session": measured.session.name,
        "system": "testbed",
        "partition": "node",
        "environment": "mpich",
        "check": "imb_p2p %operation=PingPong %placement=on-socket",
        "attempt": 0,
        "benchmark": "imb",
        "program": "IMB-MPI1",
        "version": "2021.11",
        "placement": "on-socket",
        "conditions": {},
        "tags": ["imb", "maintenance", "nightly", "smoke"],
        "nodes": [host],
        "samples": 3,
        "warmups": 1,
        "extras": HOSTILE,
        "tasks": [
            {"rank": n, "host": host, "cpus": cpu, "local": n, **nothing}
            for n, cpu in enumerate(cpus)
        ],
        "result": "pass",
        "phase": None,
        "reason": None,
    }
    assert {key: fields[key] for key in expected} == expected
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", fields["time"])
    assert int(fields["jobid"]) > 0
    assert len(fields["seconds"]["samples"]) == 4
    assert fields["seconds"]["total"] >= sum(fields["seconds"]["samples"])


def test_the_warm_up_is_kept_and_not_counted(measured: Done):
    (fields,) = measured.records
    folder = measured.session / fields["output"]
    printed = []
    for sample in range(4):
        text = (folder / f"sample-{sample}.out").read_text()
        printed.append(tuple(re.search(r"^ +8 +1000 +(\S+) +(\S+)$", text, re.M).groups()))
    assert printed == PRINTED
    foms = {(fom["metric"], fom["size"]): fom for fom in fields["foms"]}
    assert len(foms) == len(fields["foms"]) == 47
    for column, metric in enumerate(("pingpong_latency", "pingpong_bandwidth")):
        fom = foms[metric, 8]
        values = [float(row[column]) for row in printed[1:]]
        assert fom["samples"] == values
        assert fom["value"] == statistics.median(values)
        assert fom["statistic"] == "median"
        assert (fom["location"], fom["placement"], fom["reason"]) == ("", "on-socket", "")
        assert fom["summary"] == {
            "min": min(values),
            "median": statistics.median(values),
            "mean": pytest.approx(statistics.fmean(values), rel=1e-12),
            "max": max(values),
            "std": pytest.approx(statistics.stdev(values), rel=1e-12),
        }
    shown = {key for key, fom in foms.items() if fom["headline"]}
    assert shown == {("pingpong_latency", 8), ("pingpong_bandwidth", 4194304)}


def test_every_figure_is_in_every_sample_file(measured: Done):
    (fields,) = measured.records
    folder = measured.session / fields["output"]
    texts = [(folder / f"sample-{sample}.out").read_text().split() for sample in range(1, 4)]
    words = [{float(word) for word in text if re.fullmatch(r"[\d.]+", word)} for text in texts]
    for fom in fields["foms"]:
        assert len(fom["samples"]) == 3
        for value, printed in zip(fom["samples"], words, strict=True):
            assert value in printed, fom


def test_the_build_and_the_hosts_are_recorded(measured: Done):
    (fields,) = measured.records
    program = STANDINS / "IMB-MPI1"
    assert fields["build"]["path"] == str(program)
    assert fields["build"]["sha256"] == hashlib.sha256(program.read_bytes()).hexdigest()
    (host,) = fields["hosts"]
    facts = fields["hosts"][host]
    assert host == socket.gethostname()
    assert facts["kernel"] == platform.release()
    assert facts["memory"].endswith("kB")


def test_the_plan_is_written_and_the_cost_is_reported_before_the_first_job(measured: Done):
    (fields,) = measured.records
    path = measured.session / "plan.json"
    plan = json.loads(path.read_text())
    assert plan["session"] == measured.session.name
    assert plan["extras"] == HOSTILE
    assert list(plan["cases"]) == [fields["case"]]
    (planned,) = plan["cases"].values()
    assert planned["check"] == fields["check"] and planned["nodes"] == 1
    samples = (measured.session / fields["output"] / "samples.txt").read_text().splitlines()
    assert path.stat().st_mtime <= float(samples[0].split()[2])
    before, _, _ = measured.out.partition("[ RUN ")
    (cost,) = re.findall(rf"^plumbline: session {measured.session.name}: (.*)$", before, re.M)
    # Jobs, jobs at once, node-hours.
    assert re.findall(r"\d+(?:\.\d+)?", cost) == ["1", "1", "0.15"]


def test_the_closing_table_has_what_was_and_was_not_asserted(measured: Done):
    table = measured.out[measured.out.index("asserted\n") :]
    assert re.search(r"pingpong_latency_8 +7\.6 us +no reference", table)
    (figures,) = re.findall(r"^plumbline: figures of merit: (.*)$", table, re.M)
    assert re.findall(r"\d+", figures) == ["0", "0", "47"]
    assert str(measured.session / "records.jsonl") in table
    # There is no inventory yet.
    (note,) = measured.end["notes"]
    assert note in table and "testbed.json" in note and "plumbline lint" in note


def test_two_sessions_share_no_stage_folder_and_both_are_in_reframes_store(testbed: Testbed):
    testbed.environment("disk", "fio")
    stages, names = [], []
    for _ in range(2):
        done = testbed.reframe("-c", CHECKS, "-r", *FIO)
        assert done.code == 0, done.output
        stages.append(re.search(r"stage directory: +'(.+)'", done.out)[1])
        names.append(re.search(r"stored with UUID: (\S+)", done.out)[1])
        assert stages[-1].startswith(str(done.session))
        assert list(testbed.scratch.iterdir()) == []
    assert stages[0] != stages[1]
    assert len(testbed.session_folders()) == 2
    stored = testbed.reframe("--list-stored-sessions")
    assert stored.code == 0, stored.output
    assert all(name in stored.out for name in names)


def test_the_plain_command_works_and_prints_the_table(testbed: Testbed):
    if shutil.disk_usage(testbed.scratch).free < 2 * 2**30:
        pytest.skip(f"{testbed.scratch} has less than 2 GiB free, which checks/fio.py wants")
    testbed.environment("disk", "fio")
    plain = {"PATH": plain_path(), "RFM_CONFIG_FILES": ""}
    done = testbed.run("sh", "-c", ". ./env.sh && reframe -c checks/ -r", cwd=ROOT, **plain)
    assert done.code == 0, done.output
    assert [fields["result"] for fields in done.records] == ["pass", "pass"]
    assert re.search(r"write_bandwidth +1973\.79 MB/s +no reference", done.out)
    assert str(done.session / "records.jsonl") in done.out
    # It ends with the rules of a session that it cannot enforce.
    last = done.end["notes"][-1]
    assert done.out.strip().endswith(last) and "testbed.json" in last and "plumbline run" in last
    # And from any folder.
    command = f". '{ROOT}/env.sh' && reframe -c '{ROOT}/checks/' -l"
    listed = testbed.run("bash", "-c", command, cwd=testbed.folder, **plain)
    assert listed.code == 0 and "- fio " in listed.out, listed.output


# -- skips and the inventory ---------------------------------------------------------------------


def test_a_session_of_skips_alone_is_inconclusive(testbed: Testbed):
    """From the plain command too, where strict rules fail it; what only looks is no session."""
    testbed.lacking()
    plain = ["-c", CHECKS, *PINGPONG]
    for done in (testbed.plumbline("run", *PINGPONG), testbed.reframe(*plain, "-r")):
        assert [fields["result"] for fields in done.records] == ["skip"]
        assert done.code == done.end["code"] == 2
        assert (done.session / "report.json").exists()
    assert testbed.reframe(*plain, "--dry-run").code == 0
    strict = testbed.reframe(*plain, "-r", PLUMBLINE_STRICT=1)
    (fields,) = strict.records
    assert (strict.code, fields["code"]) == (1, "build.wheel-not-installed")
    # Its error is the fault: nothing is skipped.
    assert strict.end["faults"] == []


SKIPPING = """
import reframe as rfm
import reframe.utility.sanity as sn
from plumbline.check.benchmark import Benchmark, Figure
from reframe.core.builtins import fixture, run_after, sanity_function


class Plain(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "true"
    expected = True

    @sanity_function
    def ran(self):
        return sn.assert_true(self.expected)


@rfm.simple_test
class passing(Plain):
    pass


@rfm.simple_test
class without_gpu(Plain):
    @run_after("setup")
    def leave(self):
        self.skip_if(True, "no GPU")


class Built(Plain):
    expected = False  # What skips itself before needs it not.


@rfm.simple_test
class never(Plain):
    built = fixture(Built, scope="environment")

    @run_after("init")
    def leave(self):
        self.skip_if(True, "no GPU")


@rfm.simple_test
class after_never(Plain):
    @run_after("init")
    def follow(self):
        self.depends_on("never")


@rfm.simple_test
class own_without_gpu(Benchmark):
    benchmark = "imb"
    program = "IMB-MPI1"
    placement = "on-socket"
    tags = {"smoke"}
    executable_opts = ["PingPong"]

    @run_after("setup")
    def leave(self):
        self.skip_if(True, "no GPU")

    def figures(self):
        return [Figure("pingpong_latency", 8)]


@rfm.simple_test
class known(Plain):
    expected = False


@rfm.simple_test
class after_known(Plain):
    @run_after("init")
    def follow(self):
        self.depends_on("known")
"""
SKIPPED = ("without_gpu", "own_without_gpu", "never", "after_known", "after_never")


def test_what_reframe_skips_fails_under_strict_rules(testbed: Testbed):
    """Also what depends on a waived case. ReFrame itself exits with 0."""
    testbed.environment("mpich", "imb")
    path = testbed.folder / "skipping.py"
    path.write_text(SKIPPING)
    waive(testbed, waiver("known", check="known", results=["invalid"]))
    plain = ["-c", path, "-r"]
    for done, code in (
        (testbed.plumbline("run", "-c", path), 0),
        (testbed.plumbline("run", "--strict", "-c", path), 1),
        (testbed.reframe(*plain), 0),
        (testbed.reframe(*plain, PLUMBLINE_STRICT=1), 1),
    ):
        results = {fields["check"]: fields["result"] for fields in done.records}
        expected = {"passing": "pass", "known": "waived", **dict.fromkeys(SKIPPED, "skip")}
        assert (results, done.code) == (expected, code), done.output
        assert done.end["code"] == code
        faults = " ".join(done.end["faults"])
        assert [f" {check} @" in faults for check in SKIPPED] == [bool(code)] * len(SKIPPED)


def test_what_vanished_fails_the_session(testbed: Testbed):
    testbed.environment("disk", "fio")
    inventory = testbed.systems / "inventory" / "testbed.json"
    assert testbed.plumbline("lint").code == 0
    cases = [
        f"fio %placement=all-cores %direction={direction} @testbed:node+disk-io"
        for direction in ("read", "write")
    ]
    content = json.loads(inventory.read_text())
    assert content["cases"] == {case: {} for case in cases}
    # As of a check that no longer loads. A selection of what is left does not hide it.
    content["cases"]["gone @testbed:node+disk-io"] = {}
    inventory.write_text(json.dumps(content))
    done = testbed.plumbline("run", "-n", "fio.*read", *FIO[2:])
    assert (done.code, [fields["result"] for fields in done.records]) == (1, ["pass"])
    (fault,) = done.end["faults"]
    assert "gone @testbed:node+disk-io" in fault
    assert "`plumbline lint --system testbed --accept`" in fault and fault in done.out
    for pattern in ("^disk-io$", "(?i)^Disk"):
        done = testbed.plumbline("run", "-p", pattern, "-n", "fio.*read", *FIO[2:])
        assert (done.code, len(done.end["faults"])) == (1, 1), pattern
    # Cases that no longer fit their system.
    testbed.environments[0]["name"] = "renamed"
    testbed.write()
    done = testbed.plumbline("run", *FIO)
    assert (done.code, len(done.records)) == (1, 2)
    assert len(done.end["faults"]) == 3
    assert all(any(case in fault for fault in done.end["faults"]) for case in cases)


# -- retries, modes, selection -------------------------------------------------------------------


def test_a_retry_never_replaces_the_first_verdict(testbed: Testbed):
    bad = testbed.folder / "bad"
    bad.mkdir()
    (bad / "PingPong.out").write_text("")
    once = {"STANDIN_ONCE": testbed.folder / "once", "STANDIN_GOOD": OUTPUTS}
    testbed.environment("flaky", "imb", bad, **once)
    done = testbed.plumbline("run", *PINGPONG, "--max-retries=1")
    first, second = done.records
    assert (first["attempt"], first["result"]) == (0, "invalid")
    assert (second["attempt"], second["result"]) == (1, "pass")
    assert first["case"] == second["case"]
    assert done.code == 1
    assert len(json.loads((done.session / "plan.json").read_text())["cases"]) == 1


def _listed(done: Done) -> list[str]:
    assert done.code == 0, done.output
    return re.findall(r"^- (.+?) /\w+$", done.out, re.M)


#: Options -> whether they ask for cases at published scale.
ASKED = {
    "": False,
    "--mode=full": True,
    "--tag=full": True,
    "-tfull": True,
    "-t ^full$": True,
    "--mode=nightly": False,
    "-n hpcc": False,
    "-t hpcc": False,
    "--tag=maintenance": False,
}


@pytest.mark.parametrize("options", ASKED)
def test_cases_at_published_scale_must_be_asked_for(options: str):
    assert bool(configuration.asked_for("full", options.split())) == ASKED[options]


def test_what_is_listed(testbed: Testbed):
    """Cases at published scale when asked for; of a mode what has its tag, and no longer one."""
    testbed.environment("mpich", "imb hpcc")
    for option, scale in (("-nhpcc", "cache"), ("--tag=full", "memory")):
        (case,) = _listed(testbed.reframe("-c", CHECKS / "hpcc.py", "-l", option))
        assert f"scale={scale}" in case
    quick = testbed.check_file("quick", tags={"smoke"})
    slow = testbed.check_file("slow", tags={"nightly", "smoke-and-mirrors", "no-smoke"})
    for mode, cases in {"smoke": ["quick"], "nightly": ["slow"]}.items():
        assert _listed(testbed.reframe("-c", quick, "-c", slow, "-l", f"--mode={mode}")) == cases
    assert testbed.session_folders() == set()


def test_a_mode_leaves_the_environments_as_they_are_chosen(testbed: Testbed):
    """ReFrame's own --mode makes -p choose all of them. The command line may have variables of
    checks without cases here, as one that serves several systems."""
    for mode in (["--mode=smoke"], ["--mode", "smoke"]):
        assert run._tagged([*mode, "-p", "one-io"]) == ["--tag=^smoke$", "-p", "one-io"]
    testbed.environment("one", "fio")
    testbed.environment("other", "fio")
    of_another = ["-S", "gpcnet_load.num_samples=3"]
    done = testbed.plumbline("run", "--mode=smoke", "-p", "one-io", *FIO, "-n", "foi", *of_another)
    assert [f["environment"] for f in done.records] == ["one-io"] * 2, done.output
    # A name that selects nothing beside one that does.
    assert any("-n foi: " in note and "fio?" in note for note in done.end["notes"])


@pytest.mark.parametrize(
    ("variable", "code", "names"),
    [
        ("num_sample=1", "input.unknown-name", ["num_sample", "mean num_samples"]),
        ("placement=one-core", "input.unknown-name", ["placement"]),
        ("fio.sizes=8", "input.unknown-name", ["check fio", "sizes", "mean size"]),
        ("fioo.size=8", "input.unknown-name", ["fioo", "fio"]),
        ("nosuch.size=8", "input.unknown-name", ["nosuch", "more; `plumbline doctor`"]),
        ("num_samples", "input.wrong-option", ["num_samples=VALUE"]),
        ("num_samples=two", "input.wrong-option", ["-S num_samples=two"]),
    ],
)
def test_a_variable_that_cannot_be_set_is_refused(
    testbed: Testbed, variable: str, code: str, names: list[str]
):
    """ReFrame warns of most at best, measures something else, and exits 0."""
    testbed.environment("disk", "fio")
    refused(testbed.plumbline("run", *FIO, "-S", variable), f"[{code}]", *names)


@pytest.mark.parametrize(
    ("variable", "code", "names"),
    [
        ("num_sample=1,2", "input.unknown-name", ["num_sample", "mean num_samples"]),
        ("fioo.num_samples=1", "input.unknown-name", ["fioo", "fio"]),
        ("num_samples", "input.wrong-option", ["num_samples=VALUE"]),
    ],
)
def test_a_parameter_that_cannot_be_set_is_refused(
    testbed: Testbed, variable: str, code: str, names: list[str]
):
    """ReFrame warns of it, and measures the case once."""
    testbed.environment("disk", "fio")
    refused(testbed.plumbline("run", *FIO, "-P", variable), f"[{code}]", *names)


def test_a_tag_that_no_check_has_is_reported(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", *FIO, "-t", "nightli")
    assert done.code == 2 and "input.unknown-name" in done.codes and "nightly?" in done.err


FLAKY = """\
import os
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, sanity_function


@rfm.simple_test
class flaky(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "true"
    which = parameter(["good", "bad"])

    @sanity_function
    def fine(self):
        return sn.assert_true(self.which == "good" or "REPAIRED" in os.environ)
"""


def test_what_failed_is_repeated(testbed: Testbed):
    testbed.environment("disk", "fio")
    path = testbed.folder / "flaky.py"
    path.write_text(FLAKY)
    again = ["run", "-c", path, "--restore-session", "--failed"]
    refused(testbed.asked(*again), "[history.empty]")
    first = testbed.plumbline("run", "-c", path)
    assert (first.code, len(first.records)) == (1, 2), first.output
    dry_run = testbed.results / "sessions" / f"2{first.session.name}" / "report.json"
    dry_run.parent.mkdir()
    dry_run.write_text("{}")
    # One that somebody kept under another name is not the newest.
    kept = testbed.results / "sessions" / f"old-{first.session.name}"
    shutil.copytree(first.session, kept)
    (kept / "report.json").write_text("{}")
    second = testbed.plumbline(*again, REPAIRED=1)
    assert not any(kept.name in note for note in second.end["notes"])
    (fields,) = second.records
    assert (second.code, fields["check"], fields["result"]) == (0, "flaky %which=bad", "pass")


@pytest.mark.parametrize("narrowed", [["-n", "fio.*write"], ["-t", "^fio$"], ["--prgenv=disk-io"]])
def test_a_selection_narrows(narrowed: list[str]) -> None:
    assert configuration.narrowing(narrowed)


def test_what_a_build_would_add_is_noted_where_all_was_asked_for(make_testbed) -> None:
    testbed = make_testbed("local")
    testbed.environment("disk", "fio")
    testbed.environment("openmpi", "gpcnet", provider="spack")
    unbuilt = {"PLUMBLINE_TOOLS": testbed.folder / "none"}
    for selected, noted in ((FIO[2:], True), (FIO, False)):
        done = testbed.plumbline("run", *selected, **unbuilt)
        assert done.code == 0
        assert any("`plumbline build local`" in note for note in done.end["notes"]) == noted


def test_a_dry_run_reports_no_result(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.reframe("-c", CHECKS, "--dry-run", *FIO)
    (counts,) = re.findall(r"^plumbline: (2 of 2 .*)$", done.out, re.M)
    assert "2 rendered" in counts and "pass" not in counts


def test_a_case_that_nothing_fails_by_its_figures_does_not_pass(testbed: Testbed):
    testbed.environment("disk", "fio")
    testbed.refer({"id": "r", "benchmark": "fio", "metric": "write_bandwidth", "unit": "MB/s",
                   "value": "999999", "placement": "all-cores"})  # fmt: skip
    plain = ("-c", CHECKS, "-r", *FIO, "--disable-hook=assert_verdicts")
    done = testbed.reframe(*plain)
    found = {fields["result"]: fields for fields in done.records}
    assert (done.code, {*found}) == (1, {"pass", "invalid"})
    assert "direction=write" in found["invalid"]["check"]
    assert found["invalid"]["code"] == "case.phase-skipped"


@pytest.mark.parametrize("given", ["true", "2"])
def test_strict_rules_that_are_misspelt_are_refused(testbed: Testbed, given: str):
    """By plain ReFrame; `plumbline run` reads it as an option."""
    testbed.environment("disk", "fio")
    plain = ("-c", CHECKS, "-r", *FIO)
    refused(testbed.reframe(*plain, PLUMBLINE_STRICT=given), "[input.wrong-option]", given)


def test_strict_rules_by_the_variable_are_those_of_the_option(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", *FIO, PLUMBLINE_STRICT=1)
    assert (done.code, done.end["faults"]) == (2, [])
    assert any("inventory" in note for note in done.end["notes"]), done.output


@pytest.mark.parametrize("phase", ["sanity", "performance"])
def test_the_plain_command_without_a_phase_trusts_nothing(testbed: Testbed, phase: str):
    testbed.environment("disk", "fio")
    done = testbed.reframe("-c", CHECKS, "-r", *FIO, f"--skip-{phase}-check")
    for fields in done.records:
        assert fields["result"] in ("invalid", "error")
        assert fields["foms"] == []
        assert fields["code"] == "case.phase-skipped"
    assert len(done.records) == 2


def test_a_case_on_many_nodes_takes_few_lines(measured: Done):
    of = measured.record("imb_p2p")
    (fom,) = [fom for fom in of["foms"] if fom["headline"]][:1]
    cases = [
        of
        | {"check": f"{of['check']} %.nid=n{number}", "case": f"c{number}", "nodes": [f"n{number}"]}
        | {"foms": [fom | {"value": 100.0 + number, "better": "higher", "verdict": "pass"}]}
        for number in range(1, 500)
    ]
    cases[7] |= {"result": "fail"}
    cases[7]["foms"][0] |= {"value": 1.0, "verdict": "fail"}
    table = summary.table([record.validate(case) for case in cases], len(cases))
    assert len(table.splitlines()) < 12
    assert "499 cases" in table and "498 pass, 1 fail" in table
    assert re.search(r"median of 499 .* 350 ", table)
    assert re.search(r"worst, n8 .* 1 ", table)
    assert re.search(r"^ *n8 .* FAIL", table, re.M)


def test_attempts_with_the_same_reason_have_their_case_once():
    attempts = [
        records.case("20261101T000000Z-000001", "2026-11-01T00:00:00Z", attempt=attempt,
                     check=check, result="error", code="case.error", reason="no")
        for check in ("one", "other")
        for attempt in range(3)
    ]  # fmt: skip
    (line,) = summary.reasons([record.validate(fields) for fields in attempts], "error")
    assert (line.count("one @"), line.count("other @"), "more" in line) == (1, 1, False)


def test_a_result_is_named_once():
    """The reason of an invalid case begins with its result, for what ReFrame prints."""
    reason = str(outcomes.Invalid("a word twice", code="output.not-parsed"))
    fields = records.case(
        "20261101T000000Z-000001", "2026-11-01T00:00:00Z", result="invalid", reason=reason
    )
    (line,) = summary.reasons([record.validate(fields)], "invalid")
    assert reason.startswith("invalid: ") and line.count("invalid: ") == 1
