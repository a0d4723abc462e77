"""Warning states: seen in the record, the closing table and the exports, and strict rules fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import records
from conftest import CHECKS, ROOT, STANDINS, Done, Testbed
from plumbline.check import record, states
from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.session import summary

PINGPONG = ["-n", "imb_p2p.*PingPong", "-S", "num_warmups=1", "-S", "num_samples=5"]
OUTPUTS = STANDINS / "outputs"

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


@pytest.fixture
def ping(testbed: Testbed) -> Callable[..., Done]:
    """PingPong on a system with one reference, run by `plumbline run`."""

    def run(*arguments: str, value: float = 1.04, output: Path = OUTPUTS, **env: str) -> Done:
        if not testbed.environments:
            testbed.environment("mpich", "imb", output)
        testbed.refer(LATENCY | {"value": value})
        if "--strict" in arguments:
            assert testbed.plumbline("lint", "--accept").code == 0
        return testbed.plumbline("run", *PINGPONG, *arguments, **env)

    return run


def noticed(done: Done) -> list[tuple[str, str, str, str]]:
    (fields,) = done.records
    return [
        (w["state"], w["code"], w["figure"], w["source"] if w["figure"] else "")
        for w in fields["warnings"]
    ]


def test_a_healthy_session_has_none(ping: Callable[..., Done]) -> None:
    done = ping("--strict")
    assert (done.code, noticed(done)) == (0, [])
    assert "warning states" not in done.out


def test_a_figure_ten_times_too_good_is_suspicious(ping: Callable[..., Done]) -> None:
    done = ping(value=10.4)
    (fields,) = done.records
    assert (done.code, fields["result"]) == (0, "pass")
    told = ("suspicious", "figure.better-than-reference", "pingpong_latency_8", "site-latency")
    assert noticed(done) == [told]
    assert "plumbline: warning states: 1 suspicious" in done.out
    assert re.search(r"pingpong_latency_8 +1.04 us +pass \(suspicious\)", done.out)
    assert "[figure.better-than-reference]" in done.out
    strict = ping("--strict", value=10.4)
    assert (strict.code, noticed(strict)) == (1, [told])


def test_two_slow_samples_of_five_are_told_by_their_numbers(
    ping: Callable[..., Done], tmp_path: Path
) -> None:
    good = (OUTPUTS / "PingPong.out").read_text()
    slow, count = re.subn(r"^( +8 +1000 +)1\.04 +7\.\d\d", r"\g<1>10.40 0.77", good, flags=re.M)
    assert count == 1
    (tmp_path / "PingPong.out").write_text(good)
    # Run 0 is the warm-up, which may be slow.
    for number in (0, 3, 5):
        (tmp_path / f"PingPong.{number}.out").write_text(slow)
    done = ping(output=tmp_path)
    (fields,) = done.records
    assert (done.code, fields["result"]) == (0, "pass")
    told = ("unstable", "figure.sample-beyond-bound", "pingpong_latency_8", "site-latency")
    assert noticed(done) == [told]
    detail = fields["warnings"][0]["detail"]
    assert re.findall(r"sample (\d) of 5", detail) == ["3", "5"]
    assert ping("--strict", output=tmp_path).code == 1


#: What a job may say on standard error beside good numbers -> the code of the warning.
SAID = {
    "CUDA error: uncorrectable ECC error encountered": "ecc-uncorrectable",
    "amdgpu 0000:01:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block":
        "ecc-uncorrectable",
    "mce: Uncorrected hardware memory error in user-access at af34214200": "ecc-uncorrectable",
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
def test_standard_error_that_tells_of_a_fault(said: str) -> None:
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


def test_good_numbers_beside_a_fault_are_recorded_with_it(ping: Callable[..., Done]) -> None:
    done = ping(STANDIN_SAYS="NVRM: Xid (PCI:0000:3b:00): 48, pid=1")
    (fields,) = done.records
    assert (done.code, fields["result"]) == (0, "pass")
    assert noticed(done) == [("warnings", "stderr.nvidia-xid", "", "")]
    (warning,) = fields["warnings"]
    assert "sample-0.err" in warning["detail"] and "5 more lines" in warning["detail"]
    assert warning["source"].startswith("NVIDIA")
    assert "plumbline: warning states: 1 warnings" in done.out
    strict = ping("--strict", STANDIN_SAYS="NVRM: Xid (PCI:0000:3b:00): 48, pid=1")
    assert strict.code == 1 and noticed(strict)


def test_strict_rules_hold_for_the_plain_command(testbed: Testbed) -> None:
    """ReFrame itself exits with 0."""
    testbed.environment("mpich", "imb", OUTPUTS)
    says = {"STANDIN_SAYS": "NVRM: Xid (PCI:0000:3b:00): 48, pid=1"}
    plain = testbed.reframe("-c", CHECKS, "-r", *PINGPONG, **says)
    assert plain.code == 0 and "the exit code is ReFrame's own" in plain.said
    strict = testbed.reframe("-c", CHECKS, "-r", *PINGPONG, PLUMBLINE_STRICT=1, **says)
    assert strict.code == 1 and "strict: 1 warnings: see the table" in strict.said
    assert "the exit code is 1" in strict.said


def test_a_run_that_failed_keeps_what_its_standard_error_says(ping: Callable[..., Done]) -> None:
    done = ping(STANDIN_SAYS="Detected 1 oom_kill event in StepId=7.0", STANDIN_STATUS="1")
    (fields,) = done.records
    assert (done.code, fields["result"]) == (1, "invalid")
    assert [w["code"] for w in fields["warnings"]] == ["stderr.out-of-memory"]


def test_a_facility_adds_patterns_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "stderr.yaml").write_text("[]")
    own = tmp_path / "site" / "stderr.yaml"
    own.write_text("- {id: fan, regex: 'fan \\d+ stopped', meaning: a fan, source: us}\n")
    (notice,) = states.of_stderr([("a", "FAN 3 stopped")], states.patterns(tmp_path))
    assert (notice.state, notice.code, notice.source) == ("warnings", "stderr.fan", "us")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {id: a b, regex: x, meaning: y, source: z}", "pattern 1 (a b): id"),
        ("- {id: a, regex: '(', meaning: y, source: z}", "not a regular expression"),
        ("- {id: a, regex: x, meaning: y}", "source: is missing"),
        ("- {id: a, regex: x, meaning: y, source: z}\n" * 2, "'a' is used twice"),
    ],
)
def test_a_faulty_table_of_patterns_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "stderr.yaml").write_text(text)
    with pytest.raises(Fault, match=re.escape(says)):
        states.patterns(tmp_path)


def test_a_faulty_table_stops_a_session_before_its_first_job(ping: Callable[..., Done],
                                                             testbed: Testbed) -> None:  # fmt: skip
    (testbed.reference / "stderr.yaml").write_text("- {id: a}\n")
    done = ping()
    assert (done.code, done.sessions) == (2, []) and "stderr.yaml" in done.err


def test_samples_of_another_job_are_invalid(testbed: Testbed) -> None:
    """A file that lay there already, of a job of the day before."""
    testbed.environment("mpich", "imb")
    yesterday = "awk '{print $1, $2, $3 - 86400, $4 - 86400}' samples.txt >a && mv a samples.txt"
    path = testbed.check_file("stale", postrun_cmds=[yesterday])
    done = testbed.reframe("-c", path, "-r")
    (fields,) = done.records
    assert fields["result"] == "invalid"
    assert re.search(r"samples\.txt: run 0 began \d+ s before the job", fields["reason"])


def test_a_record_without_warnings_is_read(ping: Callable[..., Done]) -> None:
    path = ping().session / "records.jsonl"
    fields = json.loads(path.read_text())
    assert fields["schema"] == 5
    del fields["warnings"]
    path.write_text(json.dumps(fields | {"schema": 3}) + "\n")
    (read,) = record.read(path)
    assert (read.schema_version, read.warnings) == (4, [])


def test_the_closing_table_lists_some_warnings_of_a_state_and_counts_the_rest() -> None:
    def fields(state: str, number: int) -> record.Record:
        notice = states.Notice(state, "some-code", f"detail {number}")
        case = records.case(
            "s", "2026-11-01T00:00:00Z", check=f"c{number}", warnings=[vars(notice)]
        )
        return record.validate(case)

    many = [fields(states.UNSTABLE, number) for number in range(13)]
    lines = summary.table([*many, fields(states.SUSPICIOUS, 0)], 14).splitlines()
    unstable = [line for line in lines if line.startswith("unstable: ")]
    assert sum("[some-code]" in line for line in unstable) == 10
    assert unstable[-1].startswith("unstable: 3 more")
    assert sum(line.startswith("suspicious: ") for line in lines) == 1


@pytest.mark.holds("terminal")
def test_a_quoted_line_steers_no_terminal() -> None:
    known = states.patterns(paths.reference())
    text = "\x1b[31mNVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\x1b[0m"
    (notice, *_) = states.of_stderr([("sample-1.err", text)], known)
    assert notice.detail.isprintable() and "Xid" in notice.detail
