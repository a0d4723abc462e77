"""Every check on stand-in programs, through ReFrame and MPICH's real launcher: green where it may
be, red for all that must not pass."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import foreign
import pytest
from conftest import CHECKS, PATIENCE, STANDINS, Done, Testbed
from own_machine import two_cores

OUTPUTS = STANDINS / "outputs"


@dataclass(frozen=True)
class Probe:
    """One check, what its stand-in prints, and one figure of it to look at.

    :ivar key: name of its output.
    :ivar printed: finds the figure in the output: what stands before it, and the figure.
    :ivar value: the figure, in its registered unit.
    :ivar unit_as: how its unit, or the key that names it, is printed, and how a wrong one would.
    """

    key: str
    check: str
    benchmark: str
    placement: str
    metric: str
    size: int | None
    value: float
    unit: str
    figures: int
    printed: str
    unit_as: tuple[str, str]
    better: str = "lower"

    @property
    def output(self) -> str:
        return (OUTPUTS / f"{self.key}.out").read_text()

    @property
    def variable(self) -> str:
        return self.metric if self.size is None else f"{self.metric}_{self.size}"

    @property
    def suffix(self) -> str:
        """End of the name of its environments."""
        return "-io" if self.benchmark == "fio" else ""

    def reads(self, text: str) -> str:
        """The output with another text in the figure's place."""
        changed, count = re.subn(self.printed, rf"\g<1>{text}", self.output, count=1, flags=re.M)
        assert count == 1
        return changed

    def row(self, environment: str, value: float | str, **cells: object) -> dict:
        """A reference row for the figure in one environment."""
        return {
            "id": f"ref-{environment}-{self.key}",
            "toolchain": environment + self.suffix,
            "benchmark": self.benchmark,
            "metric": self.metric,
            "placement": self.placement,
            "message_size": "" if self.size is None else self.size,
            "value": value,
            "unit": self.unit,
            **cells,
        }

    def worse(self, share: float) -> float:
        """The factor by which a value is worse by a share."""
        return 1 - share if self.better == "higher" else 1 + share

    def reference_at(self, factor: float) -> float:
        """The reference whose bound lies at the measured value times a factor."""
        allowed = 0.95 if self.better == "higher" else 1.10
        return self.value * factor / allowed


IMB_TIME = ("t[usec]", "t[msec]")
IMB_MEAN = ("t_avg[usec]", "t_avg[msec]")
PROBES = [
    Probe("PingPong", "imb_p2p operation=PingPong", "imb", "on-socket", "pingpong_latency", 8,
          1.04, "us", 47, r"^( +8 +1000 +)1\.04", IMB_TIME),
    Probe("Allreduce", "imb_collective operation=Allreduce", "imb", "full-node",
          "allreduce_latency", 1024, 0.43, "us", 15, r"^( +1024 +1000 +\S+ +\S+ +)0\.43", IMB_MEAN),
    Probe("Barrier", "imb_collective operation=Barrier", "imb", "full-node", "barrier_latency",
          None, 0.30, "us", 1, r"^( +1000 +\S+ +\S+ +)0\.30", IMB_MEAN),
    Probe("hpcc", "hpcc scale=cache", "hpcc", "full-node", "star_stream_triad", None, 76.1614,
          "GB/s", 28, r"^(StarSTREAM_Triad=)76\.1614", ("Rate (GB/s)", "Rate (MB/s)"), "higher"),
    Probe("write", "fio direction=write", "fio", "all-cores", "write_bandwidth", None,
          1973.790117, "MB/s", 1, r'^( +"bw_bytes" : )1973790117', ("1973790117", "1927529"),
          "higher"),
    Probe("read", "fio direction=read", "fio", "all-cores", "read_bandwidth", None,
          1118.481066, "MB/s", 1, r'^( +"bw_bytes" : )1118481066', ("1118481066", "1092266"),
          "higher"),
]  # fmt: skip
EACH = pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.key)

#: A ceiling of PingPong's bandwidth; its output has 12118.42 MB/s.
BANDWIDTH_PEAK = PROBES[0].row(
    "ceiling", 12118.0, id="ref-bandwidth", metric="pingpong_bandwidth", message_size=4194304,
    unit="MB/s", kind="peak",
)  # fmt: skip

#: All of them in one session, as cheaply as may be.
SELECTED = ["-n", "imb_p2p.*PingPong|Allreduce|Barrier|hpcc|fio", "-S", "fio.size=8"]


def run(testbed: Testbed, samples: int = 1, warmups: int = 0, *arguments: str) -> Done:
    """All checks of :data:`PROBES` in each environment of the system, by `plumbline run`."""
    count = ["-S", f"num_samples={samples}", "-S", f"num_warmups={warmups}"]
    return testbed.plumbline("run", *SELECTED, *count, *arguments)


@pytest.fixture(scope="module")
def judged(make_testbed: Callable[..., Testbed]) -> Done:
    """A session against references: an environment each for what they say."""
    testbed = make_testbed()
    environments = {
        "unknown": [],
        "inside": [p.row("inside", p.reference_at(p.worse(0.001))) for p in PROBES],
        "outside": [p.row("outside", p.reference_at(p.worse(-0.001))) for p in PROBES],
        # Faster than anything can be: above a peak rate, below the least time.
        "ceiling": [BANDWIDTH_PEAK, *(p.row("ceiling", p.value * p.worse(0.001), kind="peak")
                                      for p in PROBES)],
        # Slower than anything can be, as all that is honest.
        "honest": [p.row("honest", p.value * p.worse(-0.001), kind="peak") for p in PROBES],
        # By the raw number, a thousandth of the reference or a thousand times it; with so many
        # digits that the last one widens no bound.
        "converted": [
            probe.row("converted", f"{probe.value / 1000:.9f}" if probe.unit != "GB/s"
                      else probe.value * 1000,
                      unit={"us": "ms", "MB/s": "GB/s", "GB/s": "MB/s"}[probe.unit])
            for probe in PROBES
        ],
    }  # fmt: skip
    for name in environments:
        testbed.environment(name)
    testbed.refer(*(row for rows in environments.values() for row in rows))
    done = run(testbed)
    assert done.code == 1, done.output
    return done


def figure(done: Done, probe: Probe, environment: str) -> tuple[dict, dict]:
    """A check's record in an environment, and the figure that is looked at."""
    fields = done.record(probe.check, environment + probe.suffix)
    (fom,) = [
        fom for fom in fields["foms"] if (fom["metric"], fom["size"]) == (probe.metric, probe.size)
    ]
    return fields, fom


@EACH
def test_a_probe_is_as_its_output(probe: Probe):
    assert re.search(probe.printed, probe.output, re.M)
    assert probe.unit_as[0] in probe.output


@EACH
def test_without_a_reference_nothing_is_asserted(judged: Done, probe: Probe):
    fields, fom = figure(judged, probe, "unknown")
    assert fields["result"] == "pass" and fields["reason"] is None
    assert len(fields["foms"]) == probe.figures
    assert {f["verdict"] for f in fields["foms"]} == {"not-asserted"}
    assert fom["value"] == pytest.approx(probe.value, rel=1e-9)
    assert fom["unit"] == probe.unit
    assert fom["reference"] is fom["lower"] is fom["upper"] is None


@EACH
def test_inside_its_bounds_it_passes(judged: Done, probe: Probe):
    fields, fom = figure(judged, probe, "inside")
    assert fields["result"] == "pass"
    assert fom["verdict"] == "pass"
    assert fom["reference"] == f"ref-inside-{probe.key}"
    bound = fom["lower"] if probe.better == "higher" else fom["upper"]
    assert bound == pytest.approx(probe.value, rel=2e-3)
    assert [f["verdict"] for f in fields["foms"]].count("not-asserted") == probe.figures - 1


@EACH
def test_just_outside_it_fails_and_names_all(judged: Done, probe: Probe):
    fields, fom = figure(judged, probe, "outside")
    assert (fields["result"], fields["phase"]) == ("fail", "performance")
    assert fields["code"] == "figure.outside-bounds"
    assert fom["verdict"] == "fail"
    (node,) = fields["nodes"]
    bound = fom["lower"] if probe.better == "higher" else fom["upper"]
    for part in ("testbed:node", node, f"{probe.variable} = {probe.value:.6g} {probe.unit}",
                 f"{bound:.6g}", f"ref-outside-{probe.key}", "table 1"):  # fmt: skip
        assert part in fields["reason"]
    # The closing table has it too.
    assert fields["reason"] in judged.out
    assert "FAIL" in judged.out


@EACH
def test_above_its_ceiling_it_is_a_fault_of_the_measurement(judged: Done, probe: Probe):
    fields, fom = figure(judged, probe, "ceiling")
    assert fom["verdict"] == "above-ceiling"
    assert (fields["result"], fields["code"]) == ("fail", "figure.above-ceiling")
    assert f"ref-ceiling-{probe.key}" in fields["reason"]


def test_a_bandwidth_above_its_ceiling_is_named_beside_other_figures(judged: Done):
    fields = judged.record(PROBES[0].check, "ceiling")
    (fom,) = [
        f for f in fields["foms"] if (f["metric"], f["size"]) == ("pingpong_bandwidth", 2**22)
    ]
    assert (fom["value"], fom["ceiling"]) == (12118.42, 12118.05)
    assert fom["verdict"] == "above-ceiling"
    assert "pingpong_bandwidth_4194304 = 12118.4 MB/s" in fields["reason"]
    assert "ref-bandwidth" in fields["reason"]


@EACH
def test_a_ceiling_that_is_not_reached_asserts_nothing(judged: Done, probe: Probe):
    fields, fom = figure(judged, probe, "honest")
    assert fom["verdict"] == "not-asserted", fields["reason"]
    assert fields["result"] == "pass"


@EACH
def test_a_reference_in_another_unit_is_converted(judged: Done, probe: Probe):
    fields, fom = figure(judged, probe, "converted")
    assert fields["result"] == "pass", fields["reason"]
    assert fom["verdict"] == "pass"
    assert fom["unit"] == probe.unit
    bound = fom["lower"] if probe.better == "higher" else fom["upper"]
    assert bound == pytest.approx(probe.value * (0.95 if probe.better == "higher" else 1.10))


# -- what must not pass -------------------------------------------------------------------------


def _lines_without(text: str, pattern: str) -> str:
    kept = [line for line in text.splitlines(True) if not re.search(pattern, line)]
    assert len(kept) < text.count("\n")
    return "".join(kept)


def _alone(probe: Probe) -> str:
    """What a program that ran as two single tasks prints."""
    if probe.key == "PingPong":
        return (OUTPUTS / "singles.out").read_text()
    return _world(probe, 1) * 2


def _world(probe: Probe, tasks: int) -> str:
    """The output of a run on another number of tasks."""
    pattern = r"(CommWorldProcs=|#processes = )2\b"
    changed, count = re.subn(pattern, rf"\g<1>{tasks}", probe.output)
    assert count
    return changed


#: Fault of the output -> the output that has it.
GARBLED: dict[str, Callable[[Probe], str | bytes]] = {
    "missing": lambda probe: _lines_without(probe.output, probe.printed),
    "nan": lambda probe: probe.reads("NaN" if probe.benchmark == "fio" else "nan"),
    "infinite": lambda probe: probe.reads("Infinity" if probe.benchmark == "fio" else "inf"),
    "zero": lambda probe: probe.reads("0"),
    "negative": lambda probe: probe.reads("-1"),
    "unit": lambda probe: probe.output.replace(*probe.unit_as),
    "truncated": lambda probe: probe.output[: len(probe.output) * 2 // 3],
    "empty": lambda probe: "",
    "twice": lambda probe: probe.output * 2,
    "binary": lambda probe: probe.output.encode()[:500] + b"\xff\xfe\x00",
    "alone": _alone,
    "world": lambda probe: _world(probe, 4),
}
#: Fault of the program or of its launcher -> how the stand-ins get it.
BEHAVIOUR: dict[str, dict[str, object]] = {
    "status": {"STANDIN_STATUS": 3},
    "killed": {"STANDIN_KILL": "KILL"},
    "unbound": {"wrong": "unbound"},
    "singles": {"wrong": "singles"},
    "rejected": {"STANDIN_REJECTS": 1},
}
#: Fault -> its codes, where not every program's parser refuses it.
CODES = {
    "missing": ["output.figure-missing", "output.not-parsed"],
    "nan": ["output.not-positive", "output.not-parsed"],
    "infinite": ["output.not-positive", "output.not-parsed"],
    "zero": ["output.not-positive", "output.not-parsed"],
    "negative": ["output.not-positive", "output.not-parsed"],
    "twice": ["output.task-count", "output.not-parsed"],
    "alone": ["output.task-count", "output.not-parsed"],
    "world": ["output.task-count"],
    "one-bad": ["output.not-positive", "output.not-parsed"],
    "status": ["output.exit-code"],
    "killed": ["output.exit-code"],
    "unbound": ["proof.wrong-cpus"],
    "singles": ["proof.task-count"],
    "rejected": ["output.other-inputs"],
}
#: Fault -> what its message names, where that is not the output of the first sample.
NAMED = {
    "one-bad": r"sample-1\.out",
    "status": r"sample 0 .* 3",
    "killed": r"sample 0 .* (9|137|143)",
    "singles": r"\[0, 0\]",
    "rejected": r"sample-0\.out: .*(hpccinf\.txt|io bytes)",
}
#: Faults that not every program can have -> the features of those that can.
ONLY = dict.fromkeys(("alone", "world", "singles"), "imb hpcc") | {"rejected": "hpcc fio"}
FAULTS = [
    (fault, probe)
    for fault in [*GARBLED, *BEHAVIOUR, "one-bad"]
    for probe in PROBES
    if probe.benchmark in ONLY.get(fault, "imb hpcc fio")
]


def _garble(folder: Path, fault: str) -> Path:
    """A folder of captures that have a fault."""
    made = folder / fault
    made.mkdir(parents=True)
    for probe in PROBES:
        path = made / f"{probe.key}.out"
        if fault == "one-bad":
            path.write_text(probe.output)
            (made / f"{probe.key}.1.out").write_text(probe.reads("-1"))
        elif (fault, probe) in FAULTS:
            garbled = GARBLED[fault](probe)
            path.write_bytes(garbled if isinstance(garbled, bytes) else garbled.encode())
    return made


@pytest.fixture(scope="module")
def distrusted(make_testbed: Callable[..., Testbed]) -> Done:
    """A session in which nothing may be trusted: an environment for each fault."""
    testbed = make_testbed()
    for fault in [*GARBLED, "one-bad"]:
        garbled = _garble(testbed.folder / "garbled", fault)
        testbed.environment(fault, ONLY.get(fault, "imb hpcc fio"), garbled)
    for fault, variables in BEHAVIOUR.items():
        testbed.environment(fault, ONLY.get(fault, "imb hpcc fio"), **variables)
    done = run(testbed, 2, 0)
    assert done.code == 1, done.output
    assert len(done.records) == len(FAULTS)
    assert list(testbed.scratch.iterdir()) == []
    return done


@pytest.mark.parametrize(
    ("fault", "probe"), FAULTS, ids=[f"{fault}-{probe.key}" for fault, probe in FAULTS]
)
def test_it_is_invalid(distrusted: Done, fault: str, probe: Probe):
    fields = distrusted.record(probe.check, fault + probe.suffix)
    assert fields["result"] == "invalid", fields["reason"]
    assert fields["phase"] == "sanity"
    assert fields["foms"] == []
    assert fields["code"] in CODES.get(fault, ["output.not-parsed"]), fields["reason"]
    assert re.search(NAMED.get(fault, r"sample-0\.out: "), fields["reason"], re.S), fields["reason"]
    assert fields["reason"] in distrusted.out


def test_a_session_of_nothing_but_invalid_outputs_never_passes(distrusted: Done):
    assert {fields["result"] for fields in distrusted.records} == {"invalid"}
    assert re.search(r"^plumbline: figures of merit: 0 ", distrusted.out, re.M)


def _processes(words: str) -> list[str]:
    """Processes with these words in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words in line:
            found.append(path.parent.name)
    return found


def test_what_a_check_asks_for_and_a_node_does_not_have(testbed: Testbed):
    """A figure that is not printed, a program that does not start, and memory that cannot be bound,
    as in a container under Docker's own seccomp profile, where comm_scope ends with
    `mbind: Operation not permitted` (seen under such a filter, numactl 2.0.16). A program without a
    launcher is bound: its placement names one core, of the two that may be used."""
    programs = testbed.folder / "bin"
    shutil.copytree(STANDINS, programs, ignore=shutil.ignore_patterns("outputs", "wrong"))
    (programs / "IMB-MPI1").write_text("#!/no/such/interpreter\n")
    testbed.environment("mpich", "imb fio")
    testbed.environment("broken", "imb")
    testbed.environments[-1]["env_vars"][0][1] = (
        f"{programs}:{testbed.environments[-1]['env_vars'][0][1]}"
    )
    testbed.write()
    numactl = testbed.folder / "none" / "numactl"
    numactl.parent.mkdir()
    numactl.write_text(
        "#!/bin/sh\n"
        'echo "set_mempolicy: Operation not permitted\nsetting membind: Operation not permitted" '
        ">&2\nexit 1\n"
    )
    numactl.chmod(0o755)
    odd = testbed.check_file("odd", wanted=[("pingpong_latency", 8), ("pingpong_latency", 3)])
    copies = testbed.check_file("copies", placement="numa-matrix", one_process=True)
    narrow = testbed.check_file(
        "narrow", benchmark="fio", program="fio", placement="one-core",
        executable_opts=["--rw=write", "--directory=.", "--name=x"],
        wanted=[("write_bandwidth", None)],
    )  # fmt: skip
    checks = [word for path in (odd, copies, narrow) for word in ("-c", path)]
    done = testbed.plumbline("run", *checks, "-S", "num_samples=1", "-S", "num_warmups=0",
                             PATH=f"{numactl.parent}:{testbed.env['PATH']}")  # fmt: skip
    assert done.code == 1
    codes = {
        (fields["check"], fields["environment"]): (fields["result"], fields["code"])
        for fields in done.records
    }
    assert codes == {
        ("odd", "mpich"): ("invalid", "output.figure-missing"),
        ("odd", "broken"): ("invalid", "output.exit-code"),
        ("copies", "mpich"): ("skip", "binding.memory-policy-refused"),
        ("copies", "broken"): ("skip", "binding.memory-policy-refused"),
        ("narrow", "mpich-io"): ("pass", None),
    }
    assert "pingpong_latency_3" in done.record("odd", "mpich")["reason"]
    assert "Operation not permitted" in done.record("copies", "mpich")["reason"]
    (task,) = done.record("narrow")["tasks"]
    assert task["cpus"] == str(two_cores()[0])
    assert all(not fields["foms"] for fields in done.records if fields["result"] != "pass")


def test_a_hang_is_cut_by_the_time_limit(testbed: Testbed):
    seconds = f"36000{os.getpid()}"
    testbed.environment("hang", STANDIN_SLEEP=seconds)
    testbed.write(max_jobs=8)
    # The limit is a minute more than the samples may take: this makes it three seconds.
    done = run(testbed, 1, 0, "-S", "sample_seconds=-57")
    # What was killed may take a moment to be gone; what was not sleeps on for hours.
    deadline = time.monotonic() + PATIENCE
    while (left := _processes(f"sleep {seconds}")) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        os.kill(int(process), 9)
    assert done.code == 1
    assert len(done.records) == len(PROBES)
    for fields in done.records:
        assert fields["result"] in ("invalid", "error")
        assert fields["code"] in ("job.time-limit", "output.sample-unfinished"), fields["reason"]
        assert fields["foms"] == []
    assert left == []
    assert list(testbed.scratch.iterdir()) == []


def test_a_time_that_is_given_is_that_of_the_large_hpl_too(testbed: Testbed):
    testbed.environment("one", features="hpcc")
    where = ["-c", CHECKS, "-n", "hpcc.*scale=memory", "--tag=full", "--dry-run"]
    done = testbed.reframe(*where, "-S", "sample_seconds=300")
    assert done.code == 0, done.output
    assert " 0.10 node-hours" in done.out


def test_a_switch_of_a_check_is_switched_off_by_zero(tmp_path: Path):
    """ReFrame takes any text for true where a variable is Python's own bool. The golden scripts
    have what is missing here."""
    foreign.prepare("eagle", tmp_path)
    one = ["-S", "validate=0", "-n", "osu_p2p.*test=latency.*off-node"]
    code, out, err = foreign.reframe("eagle", tmp_path, "--dry-run", *one)
    assert code == 0, out + err
    (script,) = tmp_path.glob("results/sessions/*/stage/**/rfm_job.sh")
    assert "osu_latency" in script.read_text()
    assert "echo -c" not in script.read_text()
