"""Warning states: seen in the record, the closing table and the exports, and strict rules fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import records
from conftest import CHECKS, ROOT, STANDINS, Done, Testbed, codes_in
from plumbline.check import record, states
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.session import summary
from plumbline.session.session import Session

PINGPONG = ["-n", "imb_p2p.*PingPong", "-S", "num_warmups=1", "-S", "num_samples=5"]
OUTPUTS = STANDINS / "outputs"
TIME = "2026-11-01T00:00:00Z"

#: A reference that PingPong's stand-in meets: 1.04 us at 8 bytes.
LATENCY = {
    "id": "site-latency",
    "benchmark": "imb",
    "metric": "pingpong_latency",
    "placement": "on-socket",
    "message_size": 8,
    "value": 1.04,
    "unit": "us",
}


#: Environment -> slow samples of the figure, by number; run 0 is the warm-up, which may be slow.
SLOW = {"unstable": (0, 3, 5), "interrupted": (0, 4)}
XID = "NVRM: Xid (PCI:0000:3b:00): 48, pid=1"


@pytest.fixture(scope="module")
def bed(make_testbed: Callable[..., Testbed]) -> Testbed:
    """A system with an environment for each state, and a reference that is far off for one."""
    testbed = make_testbed()
    good = (OUTPUTS / "PingPong.out").read_text()
    slow, count = re.subn(r"^( +8 +1000 +)1\.04 +7\.\d\d", r"\g<1>10.40 0.77", good, flags=re.M)
    assert count == 1
    for name, numbers in SLOW.items():
        outputs = testbed.folder / name
        outputs.mkdir()
        (outputs / "PingPong.out").write_text(good)
        for number in numbers:
            (outputs / f"PingPong.{number}.out").write_text(slow)
        testbed.environment(name, "imb", outputs)
    testbed.environment("healthy", "imb", OUTPUTS)
    testbed.environment("suspicious", "imb", OUTPUTS)
    testbed.environment("warnings", "imb", OUTPUTS, STANDIN_SAYS=f"'{XID}'")
    testbed.environment("ended", "imb", OUTPUTS, STANDIN_STATUS=1,
                        STANDIN_SAYS="'Detected 1 oom_kill event in StepId=7.0'")  # fmt: skip
    testbed.refer(
        LATENCY,
        LATENCY | {"id": "site-far-off", "value": 10.4, "toolchain": "suspicious"},
    )
    assert testbed.plumbline("lint").code == 0
    return testbed


@pytest.fixture(scope="module")
def session(bed: Testbed) -> Done:
    """A session of all environments whose program ends with 0."""
    return bed.plumbline("run", *PINGPONG, "-p", "^(?!ended|interrupted)")


def noticed(fields: dict) -> list[tuple[str, str, str, str]]:
    return [
        (w["state"], w["code"], w["figure"], w["source"] if w["figure"] else "")
        for w in fields["warnings"]
    ]


#: Environment, which is called as its state -> code, figure and source of its one warning.
NOTICED = {
    "healthy": None,
    "suspicious": ("figure.better-than-reference", "pingpong_latency_8", "site-far-off"),
    "unstable": ("figure.sample-beyond-bound", "pingpong_latency_8", "site-latency"),
    "warnings": ("stderr.nvidia-xid", "", ""),
}


@pytest.mark.parametrize("state", NOTICED)
def test_a_state_is_in_the_record_and_no_result(session: Done, state: str) -> None:
    fields = session.record("imb_p2p", state)
    warning = NOTICED[state]
    assert (session.code, fields["result"]) == (0, "pass")
    assert noticed(fields) == ([(state, *warning)] if warning else [])
    # The closing table has it, with its code.
    lines = [line for line in session.out.splitlines() if line.startswith(f"{state}: ")]
    assert [codes_in(line) for line in lines] == ([[warning[0]]] if warning else [])


def test_the_closing_table_marks_and_counts_them(session: Done) -> None:
    assert re.search(r"pingpong_latency_8 +1.04 us +pass \(suspicious\)", session.out)
    assert "1 suspicious, 1 unstable, 1 warnings" in session.out


def test_slow_samples_are_named_by_their_numbers(session: Done) -> None:
    (warning,) = session.record("imb_p2p", "unstable")["warnings"]
    assert re.findall(r"sample (\d) of 5", warning["detail"]) == ["3", "5"]


def test_a_line_of_standard_error_is_quoted_with_its_file(session: Done) -> None:
    (warning,) = session.record("imb_p2p", "warnings")["warnings"]
    assert "sample-0.err" in warning["detail"] and XID in warning["detail"]
    assert warning["source"].startswith("NVIDIA")


@pytest.mark.parametrize("state", states.STATES)
def test_strict_rules_fail_on_each_state(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setenv("PLUMBLINE_STRICT", "1")
    warning = vars(states.Notice(state, "some.code", "detail"))
    ended = Session("name", dry_run=False, extras={})
    ended.records = [record.validate(records.case("s", TIME, warnings=[warning]))]
    assert ended._note_warnings() and ended.exit_code == 1


def test_strict_rules(bed: Testbed) -> None:
    """ReFrame itself exits with 0."""
    strict = bed.plumbline("run", "--strict", *PINGPONG, "-p", "healthy|warnings")
    assert strict.code == 1
    assert [fields["result"] for fields in strict.records] == ["pass", "pass"]
    assert bed.plumbline("run", "--strict", *PINGPONG, "-p", "healthy").code == 0
    plain = ["-c", CHECKS, "-r", *PINGPONG, "-p", "warnings"]
    assert bed.reframe(*plain).code == 0
    assert bed.reframe(*plain, PLUMBLINE_STRICT=1).code == 1


def test_strict_rules_pass_one_sample_beyond_a_bound(bed: Testbed) -> None:
    """It is reported, and no more: a short run may be interrupted on any night."""
    strict = bed.plumbline("run", "--strict", *PINGPONG, "-p", "interrupted")
    (warning,) = noticed(strict.record("imb_p2p", "interrupted"))
    assert warning == ("unstable", states.LONE, "pingpong_latency_8", "site-latency")
    assert strict.code == 0 and "1 unstable" in strict.out
    assert bed.plumbline("run", "--strict", *PINGPONG, "-p", "interrupted|unstable").code == 1


def test_runs_that_are_invalid(bed: Testbed) -> None:
    """One keeps what its standard error says; the other has samples of the day before."""
    yesterday = "awk '{print $1, $2, $3 - 86400, $4 - 86400}' samples.txt >a && mv a samples.txt"
    stale = bed.check_file("stale", postrun_cmds=[yesterday])
    few = ["-S", "num_samples=1", "-S", "num_warmups=0", "-n", "stale|imb_p2p.*PingPong"]
    done = bed.reframe("-c", CHECKS, "-c", stale, "-r", *few, "-p", "healthy|ended")
    ended, old = done.record("imb_p2p", "ended"), done.record("stale", "healthy")
    assert (ended["result"], ended["code"]) == ("invalid", "output.exit-code")
    assert [w["code"] for w in ended["warnings"]] == ["stderr.out-of-memory"]
    assert (old["result"], old["code"]) == ("invalid", "output.other-job")


#: What a job may say on standard error beside good numbers -> the code of the warning.
SAID = {
    "CUDA error: uncorrectable ECC error encountered": "ecc-uncorrectable",
    "amdgpu 0000:01:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block":
        "ecc-uncorrectable",
    "mce: Uncorrected hardware memory error in user-access at af34214200": "ecc-uncorrectable",
    "        Uncorrectable Error                            : 3": "ecc-uncorrectable",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0": "edac-uncorrectable",
    "mce: [Hardware Error]: Machine check events logged": "machine-check",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1122, GPU has fallen off the bus.": "nvidia-xid",
    "Xid 79": "nvidia-xid",
    "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.": "gpu-lost",
    "Memory access fault by GPU node-4 (Agent handle: 0x2) on address 0x7f.": "gpu-memory-fault",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1054.0. Some of the step tasks have "
    "been OOM Killed.": "out-of-memory",
    "slurmstepd: error: Detected 1 oom-kill event(s) in step 3495064.0 cgroup.": "out-of-memory",
    "srun: error: nid001277: tasks 1-3: Out Of Memory": "out-of-memory",
    "[node1:7278 :0:7278] Caught signal 11 (Segmentation fault: Sent by the kernel)": "signal",
    "mpirun noticed that process rank 1 with PID 0 on node node1 exited on signal 11": "signal",
    "srun: error: node1: task 0: Segmentation fault (core dumped)": "signal",
    "signal 11": "signal",
    "ib_mlx5_log.c:179  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81)":
        "transport-retry",
    "Failed status transport retry counter exceeded (12) for wr_id 0": "transport-retry",
    "transport retry exceeded": "transport-retry",
    "CPU1: Core temperature above threshold, cpu clock throttled (total events = 1)": "throttled",
    "CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 7)":
        "throttled",
}  # fmt: skip


@pytest.mark.parametrize("said", SAID)
def test_standard_error_that_reports_a_fault(said: str) -> None:
    codes = [n.code for n in states.of_stderr([("a", said)], states.patterns(paths.reference()))]
    assert f"stderr.{SAID[said]}" in codes
    # No word of task.sh is the program's: a host may be called so.
    own = f"plumbline-host node1 driver {said}"
    assert states.of_stderr([("a", own)], states.patterns(paths.reference())) == []


def test_every_pattern_has_an_example() -> None:
    assert {pattern.id for pattern in states.patterns(paths.reference())} == {*SAID.values()}


@pytest.mark.parametrize(
    "said",
    [
        "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        "amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0",
        "terminated by signals sent by mpirun (as reported here).",
        "Maxid 79",
        "CPU0: Core temperature/speed normal",
    ],
)
def test_standard_error_of_a_healthy_job(said: str) -> None:
    assert states.of_stderr([("a", said)], states.patterns(paths.reference())) == []


#: Captures of runs that a signal ended, on purpose.
ENDED_BY_SIGNAL = re.compile(
    r"killed|no_space|file_size_limit|WRONG|m_unknown|graph_tty|v53_openmpi_cas_latency"
)


def test_no_capture_of_a_healthy_run_has_a_warning() -> None:
    known = states.patterns(paths.reference())
    found = [path for path in (ROOT / "tests" / "captures").rglob("*") if path.is_file()]
    assert len(found) > 500
    for path in found:
        if not ENDED_BY_SIGNAL.search(path.name):
            text = path.read_text(errors="replace")
            assert states.of_stderr([(path.name, text)], known) == [], path


def test_a_facility_adds_patterns_of_its_own(tmp_path: Path, monkeypatch) -> None:
    own = tmp_path / "reference" / "stderr.yaml"
    own.parent.mkdir()
    own.write_text("- {id: fan, regex: 'fan \\d+ stopped', meaning: a fan, source: us}\n")
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    (notice,) = states.of_stderr([("a", "FAN 3 stopped")], states.patterns(paths.reference()))
    assert (notice.state, notice.code, notice.source) == ("warnings", "stderr.fan", "us")


def test_each_pattern_has_a_remedy_of_its_own(tmp_path: Path, monkeypatch) -> None:
    """A facility's may have one too."""
    shipped = states.patterns(paths.reference())
    assert len({pattern.remedy for pattern in shipped}) == len(shipped)
    own = tmp_path / "reference" / "stderr.yaml"
    own.parent.mkdir()
    rest = "regex: x, meaning: y, source: z"
    own.write_text(f"- {{id: fan, {rest}}}\n- {{id: pump, remedy: Call us., {rest}}}\n")
    monkeypatch.setenv("PLUMBLINE_SITE", str(tmp_path))
    found = states.reasons(paths.reference())
    assert found["stderr.pump"].remedy == "Call us. Source of the words: z."
    assert "logs" in found["stderr.fan"].remedy


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("- {id: a b, regex: x, meaning: y, source: z}", "1 (a b): id", "input.wrong-file"),
        ("- {id: a, regex: '(', meaning: y, source: z}", "1 (a): regex", "input.wrong-file"),
        ("- {id: a, regex: x, meaning: y}", "1 (a): source", "input.wrong-file"),
        ("- {id: a, regex: x, meaning: y, source: z}\n" * 2, "'a'", "reference.wrong-table"),
    ],
)
def test_a_faulty_table_of_patterns_is_refused(
    tmp_path: Path, text: str, place: str, code: str
) -> None:
    (tmp_path / "stderr.yaml").write_text(text)
    with pytest.raises(Fault, match=re.escape(place)) as refused:
        states.patterns(tmp_path)
    assert refused.value.code == code


def test_a_faulty_table_stops_a_session_before_its_first_job(testbed: Testbed) -> None:
    testbed.environment("mpich", "imb")
    (testbed.reference / "stderr.yaml").write_text("- {id: a}\n")
    done = testbed.plumbline("run", *PINGPONG)
    assert (done.code, done.sessions) == (2, []) and done.codes == ["input.wrong-file"]


def test_a_record_of_before_warnings_is_read() -> None:
    fields = records.case("s", TIME) | {"schema": 3}
    del fields["warnings"]
    read = record.parse(json.dumps(fields).encode())
    assert (read.schema_version, read.warnings) == (record.SCHEMA, [])


def test_the_closing_table_lists_some_warnings_of_a_state_and_counts_the_rest() -> None:
    def fields(state: str, number: int) -> record.Record:
        notice = states.Notice(state, "some-code", f"detail {number}")
        case = records.case("s", TIME, check=f"c{number}", warnings=[vars(notice)])
        return record.validate(case)

    many = [fields(states.UNSTABLE, number) for number in range(13)]
    lines = summary.table([*many, fields(states.SUSPICIOUS, 0)], 14).splitlines()
    unstable = [line for line in lines if line.startswith("unstable: ")]
    assert sum("[some-code]" in line for line in unstable) == 10
    assert unstable[-1].startswith("unstable: 3 more")
    assert sum(line.startswith("suspicious: ") for line in lines) == 1


@pytest.mark.parametrize(
    ("nodes", "detail", "shown"),
    [(["n1"], "n1: GPU 0 was throttled", ": n1: GPU"), (["n1"], "Xid 48", " on n1: Xid"),
     (["n1", "n2"], "n2: GPU 0 was throttled", ": n2: GPU"),
     (["n1", "n2"], "n12: GPU 0", " on n1, n2: n12: GPU"), ([], "Xid 48", ": Xid")],
)  # fmt: skip
def test_a_warning_has_its_node_once(nodes: list[str], detail: str, shown: str) -> None:
    notice = states.Notice(states.WARNINGS, "some-code", detail)
    case = records.case("s", TIME, check="c", nodes=nodes, warnings=[vars(notice)])
    (line,) = re.findall("warnings: .*some-code.*", summary.table([record.validate(case)], 1))
    assert re.search(rf"@\S+{shown}", line), line


@pytest.mark.parametrize(
    ("partitions", "shown"), [(["cpu"], ["gnu"]), (["cpu", "gpu"], ["cpu+gnu", "gpu+gnu"])]
)
def test_the_closing_table_has_the_partition_if_there_are_several(partitions, shown) -> None:
    cases = [
        records.case("s", TIME, partition=name, environment="gnu", foms=[records.figure(1.0)])
        for name in partitions
    ]
    table = summary.table([record.validate(case) for case in cases], len(cases))
    assert re.findall(r"\S*gnu", table) == shown


def test_the_closing_table_marks_passes_by_wide_bounds() -> None:
    asserted = {
        "summit-osu-latency-host-to-host": "pass",
        "perlmutter-osu-latency-host-to-host": "fail",
        "summit-gpcnet-random-ring-latency-isolated-03-median": "pass",
        "a-row-that-was-removed": "pass",
    }
    foms = [
        records.figure(1.0, metric=f"m{number}", reference=name, verdict=verdict, headline=True)
        for number, (name, verdict) in enumerate(asserted.items())
    ]
    table = summary.table([record.validate(records.case("s", TIME, foms=foms))], 1)
    assert re.findall(r"(m\d) .* pass \(wide bounds\)", table) == ["m0"]
    assert "1 passed wide bounds" in table


@pytest.mark.holds("terminal")
def test_a_quoted_line_steers_no_terminal() -> None:
    known = states.patterns(paths.reference())
    text = "\x1b[31mNVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\x1b[0m"
    (notice, *_) = states.of_stderr([("sample-1.err", text)], known)
    assert notice.detail.isprintable() and "Xid" in notice.detail
