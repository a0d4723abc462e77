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
from conftest import CHECKS, ROOT, STANDINS, Done, Testbed, plain_path, two_cores
from plumbline.check import record
from plumbline.session import summary

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
    done = testbed.plumbline("run", "-n", "PingPong", *samples, f"--session-extras={extras}")
    assert done.code == 0, done.said
    return done


def test_extras_without_a_value_stop_a_session_before_it_starts(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", "-n", "fio", "--session-extras=maintenance")
    assert (done.code, done.sessions) == (2, []) and "Traceback" not in done.err
    assert "--session-extras maintenance: 'maintenance' is not KEY=VALUE" in done.err


def test_a_session_leaves_one_record_for_its_case(measured: Done):
    (fields,) = measured.records
    cpus = [str(cpu) for cpu in two_cores()]
    host = socket.gethostname()
    # Neither the launcher nor the binding says anything of GPUs.
    nothing = {"given": "", "gpus": "", "devices": ""}
    told = {
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
    assert {key: fields[key] for key in told} == told
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


def test_every_figure_stands_in_every_sample_file(measured: Done):
    (fields,) = measured.records
    folder = measured.session / fields["output"]
    texts = [(folder / f"sample-{sample}.out").read_text().split() for sample in range(1, 4)]
    words = [{float(word) for word in text if re.fullmatch(r"[\d.]+", word)} for text in texts]
    for fom in fields["foms"]:
        assert len(fom["samples"]) == 3
        for value, there in zip(fom["samples"], words, strict=True):
            assert value in there, fom


def test_the_build_and_the_hosts_are_told(measured: Done):
    (fields,) = measured.records
    program = STANDINS / "IMB-MPI1"
    assert fields["build"]["path"] == str(program)
    assert fields["build"]["sha256"] == hashlib.sha256(program.read_bytes()).hexdigest()
    (host,) = fields["hosts"]
    facts = fields["hosts"][host]
    assert host == socket.gethostname()
    assert facts["kernel"] == platform.release()
    assert facts["memory"].endswith("kB")


def test_the_plan_is_written_and_the_cost_is_said_before_the_first_job(measured: Done):
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
    cost = re.search(r"1 job, 1 queued at once; at most 0\.08 node-hours", measured.out)
    assert cost and cost.start() < measured.out.index("[ RUN ")


def test_the_closing_table_tells_what_was_and_was_not_asserted(measured: Done):
    table = measured.out[measured.out.index("asserted\n") :]
    assert re.search(r"pingpong_latency_8 +7\.6 us +no reference", table)
    assert "1 of 1 test case: 1 pass" in table
    assert "0 asserted (0 failed), 47 without a reference" in table
    assert str(measured.session / "records.jsonl") in table
    # There is no inventory yet, which is said.
    assert "testbed.json does not exist" in table and "plumbline lint" in table
    assert "plain reframe" not in table


def test_two_sessions_share_no_stage_folder_and_both_are_in_reframes_store(testbed: Testbed):
    testbed.environment("disk", "fio")
    stages, names = [], []
    for _ in range(2):
        done = testbed.reframe("-c", CHECKS, "-r", *FIO)
        assert done.code == 0, done.said
        stages.append(re.search(r"stage directory: +'(.+)'", done.out)[1])
        names.append(re.search(r"stored with UUID: (\S+)", done.out)[1])
        assert stages[-1].startswith(str(done.session))
        assert list(testbed.scratch.iterdir()) == []
    assert stages[0] != stages[1]
    assert len(testbed.session_folders()) == 2
    stored = testbed.reframe("--list-stored-sessions")
    assert stored.code == 0, stored.said
    assert all(name in stored.out for name in names)


@pytest.mark.parametrize("where", ["project", "elsewhere"])
def test_the_plain_command_works_and_prints_the_table(testbed: Testbed, where: str):
    if shutil.disk_usage(testbed.scratch).free < 2 * 2**30:
        pytest.skip(f"{testbed.scratch} has less than 2 GiB free, which checks/fio.py wants")
    testbed.environment("disk", "fio")
    plain = {"PATH": plain_path(), "RFM_CONFIG_FILES": ""}
    if where == "project":
        done = testbed.run("sh", "-c", ". ./env.sh && reframe -c checks/ -r", cwd=ROOT, **plain)
    else:
        command = f". '{ROOT}/env.sh' && reframe -c '{ROOT}/checks/' -r"
        done = testbed.run("bash", "-c", command, cwd=testbed.folder, **plain)
    assert done.code == 0, done.said
    assert [fields["result"] for fields in done.records] == ["pass", "pass"]
    assert "2 of 2 test cases: 2 pass" in done.out
    assert re.search(r"write_bandwidth +1973\.79 MB/s +no reference", done.out)
    # It says which rules of a session it cannot enforce.
    last = done.out.strip().splitlines()[-1]
    assert "nothing was compared with the inventory" in last and "plumbline run" in last
    assert str(done.session / "records.jsonl") in done.out


# -- skips and strictness ------------------------------------------------------------------------


@pytest.fixture
def lacking(testbed: Testbed) -> Testbed:
    """A system with one environment whose program is there, and one whose program is not."""
    testbed.environment("there", "imb")
    testbed.lacking()
    return testbed


def test_a_skip_is_recorded_with_its_reason_and_mend(lacking: Testbed):
    done = lacking.plumbline("run", *PINGPONG)
    assert done.code == 0
    assert done.record("imb_p2p", "there")["result"] == "pass"
    fields = done.record("imb_p2p", "lacks")
    assert fields["result"] == "skip"
    for part in ("mpich is not installed", str(lacking.folder / "no-tools"), "plumbline setup"):
        assert part in fields["reason"]
    assert f"skip: {fields['check']} @node+lacks: {fields['reason']}" in done.out
    assert "1 pass, 1 skip" in done.out or "1 skip, 1 pass" in done.out


def test_a_session_of_skips_alone_could_not_tell(lacking: Testbed):
    """From the plain command too; what only looks is no session."""
    wanted = [*PINGPONG, "-p", "lacks"]
    plain = ["-c", CHECKS, *wanted]
    for done in (lacking.plumbline("run", *wanted), lacking.reframe(*plain, "-r")):
        assert [fields["result"] for fields in done.records] == ["skip"]
        assert done.code == 2
        assert json.loads((done.session / "end.json").read_text())["code"] == 2
        assert (done.session / "report.json").exists()
    assert lacking.reframe(*plain, "--dry-run").code == 0


def test_strict_makes_a_skip_a_failure(lacking: Testbed):
    done = lacking.plumbline("run", "--strict", *PINGPONG)
    assert done.code == 1
    assert done.record("imb_p2p", "there")["result"] == "pass"
    fields = done.record("imb_p2p", "lacks")
    assert fields["result"] == "error"
    assert "mpich is not installed" in fields["reason"] and "strict" in fields["reason"]


def test_strict_makes_the_plain_command_fail_it_too(lacking: Testbed):
    done = lacking.reframe("-c", CHECKS, "-r", *PINGPONG, "-p", "lacks", PLUMBLINE_STRICT=1)
    assert done.code == 1
    assert "mpich is not installed" in done.record("imb_p2p")["reason"]


# -- inventory -----------------------------------------------------------------------------------


def test_a_check_that_vanished_fails_the_session(testbed: Testbed):
    testbed.environment("disk", "fio")
    inventory = testbed.systems / "inventory" / "testbed.json"
    linted = testbed.plumbline("lint")
    assert linted.code == 0, linted.said
    cases = [
        f"fio %placement=all-cores %direction={direction} @testbed:node+disk-io"
        for direction in ("read", "write")
    ]
    content = json.loads(inventory.read_text())
    assert content["cases"] == {case: {} for case in cases}
    assert testbed.plumbline("run", *FIO).code == 0
    # What a check that no longer loads, or no longer fits its system, looks like.
    content["cases"]["gone @testbed:node+disk-io"] = {}
    inventory.write_text(json.dumps(content))
    # A selection of what is there does not hide it.
    after = testbed.plumbline("run", "-n", "fio.*read", *FIO[2:])
    assert after.code == 1
    assert [fields["result"] for fields in after.records] == ["pass"]
    assert "vanished: gone @testbed:node+disk-io" in after.out
    assert "`plumbline lint --system testbed --accept`" in after.out


def test_a_case_that_no_longer_fits_its_system_vanishes(testbed: Testbed):
    testbed.environment("disk", "fio")
    assert testbed.plumbline("lint").code == 0
    testbed.environments[0]["name"] = "renamed"
    testbed.write()
    done = testbed.plumbline("run", *FIO)
    assert done.code == 1
    assert len(done.records) == 2
    assert done.out.count("vanished: fio ") == 2


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
    assert done.code == 0, done.said
    return re.findall(r"^- (.+?) /\w+$", done.out, re.M)


def test_cases_at_published_scale_run_only_when_asked_for(testbed: Testbed):
    testbed.environment("mpich", "hpcc")
    scales = {}
    for asked in ("", "--mode=full", "--tag=full", "-tfull", "-t ^full$", "--mode=nightly",
                  "-n hpcc", "-t hpcc", "--tag=maintenance"):  # fmt: skip
        done = testbed.reframe("-c", CHECKS, "-l", *asked.split())
        scales[asked] = {re.search(r"scale=(\w+)", case)[1] for case in _listed(done)}
    assert scales == {
        "": {"cache"},
        "--mode=full": {"memory"},
        "--tag=full": {"memory"},
        "-tfull": {"memory"},
        "-t ^full$": {"memory"},
        "--mode=nightly": {"cache"},
        "-n hpcc": {"cache"},
        "-t hpcc": {"cache"},
        "--tag=maintenance": {"cache"},
    }
    assert testbed.session_folders() == set()


def test_a_mode_selects_its_tag_and_no_longer_one(testbed: Testbed):
    testbed.environment("mpich", "imb")
    quick = testbed.check_file("quick", tags={"smoke"})
    slow = testbed.check_file("slow", tags={"nightly", "smoke-and-mirrors", "no-smoke"})
    for mode, cases in {"smoke": ["quick"], "nightly": ["slow"], "screen": []}.items():
        done = testbed.reframe("-c", quick, "-c", slow, "-l", f"--mode={mode}")
        assert _listed(done) == cases


@pytest.mark.parametrize("mode", [["--mode=smoke"], ["--mode", "smoke"]])
def test_a_mode_leaves_the_environments_as_they_are_chosen(testbed: Testbed, mode: list[str]):
    """ReFrame's own --mode makes -p choose all of them."""
    testbed.environment("one", "fio")
    testbed.environment("other", "fio")
    done = testbed.plumbline("run", *mode, "-p", "one-io", *FIO)
    assert {f["environment"] for f in done.records} == {"one-io"}, done.said


def test_what_plumbline_run_refuses(testbed: Testbed):
    testbed.environment("disk", "fio")
    for option in ("--performance-report", "--skip-sanity-check", "--skip-performance-check"):
        done = testbed.plumbline("run", *FIO, option)
        assert done.code == 2
        assert "plumbline: " in done.err and len(done.err.strip().splitlines()) <= 2
        assert done.sessions == []


def test_a_variable_of_a_check_without_cases_here_is_none_too_many(testbed: Testbed):
    """A command line that serves several systems."""
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", *FIO, "-S", "gpcnet_load.num_samples=3")
    assert len(done.records) == 2, done.said


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("num_sample=1", "no check here has a variable 'num_sample'"),
        ("placement=one-core", "no check here has a variable 'placement'"),
        ("fio.sizes=8", "check fio has no variable 'sizes'"),
        ("fioo.size=8", "no check 'fioo'; near: fio"),
        ("num_samples", "add its value: -S num_samples=VALUE"),
        ("num_samples=two", "plumbline: -S: a value that its variable cannot have: invalid"),
    ],
)
def test_a_variable_that_cannot_be_set_is_refused(testbed: Testbed, variable: str, says: str):
    """ReFrame warns of most at best, measures something else, and exits 0."""
    testbed.environment("disk", "fio")
    done = testbed.plumbline("run", *FIO, "-S", variable)
    assert done.code == 2
    assert says in done.err
    assert done.sessions == []


def test_what_a_build_would_add_is_told_to_who_asked_for_all(make_testbed) -> None:
    testbed = make_testbed("local")
    testbed.environment("disk", "fio")
    here = {"PLUMBLINE_SPACK_ENV": ROOT / "spack-env", "PLUMBLINE_TOOLS": testbed.folder / "none"}
    quick = ["-S", "fio.size=8", "-S", "num_samples=1", "-S", "num_warmups=0"]
    told = "not built; `make build` would add OSU"
    for narrowed in (["-n", "fio.*write"], ["-t", "^fio$"], ["--prgenv=disk-io"]):
        assert told not in testbed.plumbline("run", *narrowed, *quick, **here).said
    done = testbed.plumbline("run", *quick, **here)
    assert done.code == 0 and told in done.out
    # It is no mend of what was asked for wrongly.
    for wrong in (["--mode=nosuch"], ["-n", "nosuch"]):
        done = testbed.plumbline("run", *wrong, **here)
        assert done.code == 2 and told not in done.said


def test_a_dry_run_says_that_it_measured_nothing(testbed: Testbed):
    testbed.environment("disk", "fio")
    done = testbed.reframe("-c", CHECKS, "--dry-run", *FIO)
    assert "2 of 2 test cases: 2 would run" in done.out
    assert "pass" not in done.out[done.out.index("plumbline: 2 of 2") :]


@pytest.mark.parametrize("phase", ["sanity", "performance"])
def test_the_plain_command_without_a_phase_trusts_nothing(testbed: Testbed, phase: str):
    testbed.environment("disk", "fio")
    done = testbed.reframe("-c", CHECKS, "-r", *FIO, f"--skip-{phase}-check")
    for fields in done.records:
        assert fields["result"] in ("invalid", "error")
        assert fields["foms"] == []
        assert fields["code"] == "case.phase-skipped"
    assert len(done.records) == 2


def test_a_case_on_many_nodes_is_told_in_few_lines(measured: Done):
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
    told = summary.table([record.validate(case) for case in cases], len(cases))
    assert len(told.splitlines()) < 12
    assert "499 cases" in told and "498 pass, 1 fail" in told
    assert re.search(r"median of 499 .* 350 ", told)
    assert re.search(r"worst, n8 .* 1 ", told)
    assert re.search(r"^ *n8 .* FAIL", told, re.M)
