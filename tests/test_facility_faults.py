"""What goes wrong at a facility, and how the records show it.

Each fault is of one case, so that all cases of a system share a session."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import foreign
import pytest
from examples import prints, shown
from facility import machine


@dataclass(frozen=True)
class Wrong:
    """A case in which something goes wrong, and what its record has to show.

    :ivar check: pattern of the case's name in the system's inventory, which one has.
    :ivar faults: what goes wrong at the facility; nothing where there is none.
    :ivar names: pattern of the names, places and numbers in the reason.
    :ivar verdict: of one of its figures.
    :ivar warnings: the codes of all its warnings.
    """

    system: str
    check: str
    faults: list[dict]
    result: str
    code: str | None = None
    names: str = ""
    verdict: str = ""
    warnings: set[str] = field(default_factory=set)

    @property
    def case(self) -> str:
        (case,) = [name for name in foreign.inventory(self.system) if re.search(self.check, name)]
        return case


def invalid(system: str, check: str, code: str, names: str = "", /, **fault: object) -> Wrong:
    return Wrong(system, check, [fault], "invalid", code, names)


def crashed(system: str, check: str, names: str) -> Wrong:
    faults = [{"kind": "crash"}]
    code = "output.exit-code"
    return Wrong(system, check, faults, "invalid", code, names, warnings={"stderr.signal"})


def printed_instead(system: str, check: str, line: str, text: str, names: str) -> Wrong:
    """The program reports that it did something else than it was asked for."""
    code = "output.other-inputs"
    return invalid(system, check, code, names, kind="rewrite", match=line, text=text)


def other_node(system: str, check: str, kind: str, names: str) -> Wrong:
    """The node is not as the system's file describes it."""
    return invalid(system, check, "topology.mismatch", rf"{system}\.yaml.* {names}", kind=kind)


def ended(system: str, check: str, state: str, code: str, names: str) -> Wrong:
    """The scheduler ends the job, and is quoted."""
    faults = [{"kind": "hang"}, {"kind": "state", "state": state}]
    return Wrong(system, check, faults, "error", f"job.{code}", names)


def passed(
    system: str, check: str, *warnings: str, verdict: str = "pass", **fault: object
) -> Wrong:
    return Wrong(system, check, [fault], "pass", None, "", verdict, set(warnings))


def above_ceiling(system: str, check: str, *warnings: str, factor: float) -> Wrong:
    faults = [{"kind": "slow", "factor": factor}]
    code = "figure.above-ceiling"
    return Wrong(system, check, faults, "fail", code, "", "above-ceiling", set(warnings))


HOST = "# Send Buffer on HOST (H) and Receive Buffer on HOST (H)\n# Size"
MANAGED = "# Send Buffer on DEVICE (D) and Receive Buffer on MANAGED (MD)\n# Size"
TOO_GOOD = "figure.better-than-reference"
OUT_OF_MEMORY = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks"

FAULTS = {
    "slow-gpu": Wrong(
        "perlmutter", "osu_gpu.*=latency", [{"kind": "slow", "gpu": 3, "factor": 1.5}],
        "fail", "figure.outside-bounds", r"latency_8_gpu0-gpu3 = .*measured on nid\d+$", "fail",
    ),
    # The run
    "no-start": Wrong(
        "perlmutter", "osu_xccl_node.*=allreduce .*gpus-on-node",
        [{"kind": "missing", "line": r"^\d"}, {"kind": "hang"}],
        "invalid", "output.not-started", r"run 0 .* 15 s .*all 4 tasks started",
    ),
    "binding": invalid("perlmutter", "osu_p2p.*=bw .*on-socket", "proof.wrong-cpus",
                       r"nid\d+", kind="binding"),
    "singletons": invalid("perlmutter", "osu_p2p.*=latency .*off-node", "output.exit-code",
                          kind="singletons"),
    "crash": crashed("perlmutter", "osu_p2p.*=bibw .*off-node", "139.*Segmentation fault"),
    "exit": invalid("perlmutter", "osu_p2p.*=mbw_mr .*off-node", "output.exit-code", r"\b7\b",
                    kind="exit", code=7),
    "crash-with-files": crashed("summit", "ior_random.*burst-buffer", "139"),
    "crash-with-many-files": crashed("summit", "mdtest .*alpine", "139"),
    "stderr": passed("perlmutter", "multi_lat .*host-to-host", "stderr.out-of-memory",
                     verdict="not-asserted", kind="says", text=OUT_OF_MEMORY),
    # The program's inputs
    "osu-host-buffers": printed_instead("perlmutter", "osu_gpu.*=bw", "^# Size", HOST, "host"),
    "osu-managed-buffers": printed_instead("perlmutter", "osu_gpu.*=bibw", "^# Size", MANAGED,
                                           "device-managed"),
    "osu-accelerator-on-hosts": printed_instead("eagle", "p2p.*=latency .*on-socket", "MPI Latency",
                                                "MPI-CUDA Latency", "cuda"),
    "osu-not-validated": printed_instead("perlmutter", "osu_p2p.*=multi_lat .*off-node",
                                         " +(Validation|Pass)$", "", "validation: pass"),
    # NCCL's errors, which osu_xccl_latency ignores: slower and faster than the link.
    "xccl-same-time": invalid("perlmutter", "osu_xccl_gpu.*=latency", "output.program-error",
                              "ignores", kind="rewrite", match=r"^(\d.*) \S+$", text=r"\1 500.00"),
    "xccl-too-fast": invalid("polaris", "osu_xccl_gpu.*=latency", "output.program-error",
                             "ignores", kind="slow", factor=1 / 20),
    "gpcnet-nodes": printed_instead("summit", "gpcnet_network", r"\(2 nodes\)", "(1 nodes)",
                                    r"\b1\b"),
    "mdtest-items": printed_instead("summit", "mdtest_building_block", r"^(\d+ tasks), \d+ files",
                                    r"\1, 400 files", "items 400"),
    "mdtest-nodes": printed_instead("polaris", "mdtest .*=eagle", r"on 2 node\(s\)", "on 1 node(s)",
                                    "nodes 1"),
    # Its MPI takes all for one node: with -C, each task then reads from its own node's cache.
    "ior-clients": printed_instead("polaris", "^ior .*=eagle .*=mpiio .*=shared",
                                   '("clients per node": )2', r"\g<1>4", "tasks per node 4"),
    "commscope-debug": invalid("perlmutter", "commscope_d2d", "build.debug", kind="rewrite",
                               match='"library_build_type": "release"',
                               text='"library_build_type": "debug"'),
    # The node
    "smt": other_node("perlmutter", "p2p.*=bw .*off-node", "smt", "processor.topology.cores .* 2 "),
    "package-joined": other_node("summit", "p2p.*=latency .*on-node.*spectrum", "package",
                                 "processor.topology.sockets .*CPU 0 "),
    "package-split": other_node("perlmutter", "p2p.*=latency .*on-socket", "package",
                                "processor.topology.sockets .*CPU 0 .*0,2,4"),
    "numa-numbers": other_node("summit", "p2p.*=bibw .*on-node.*spectrum", "numa",
                               "extras.numa_os_numbers .*0"),
    "numa-cores": other_node("eagle", "p2p.*=bibw .*on-node", "numa",
                             "processor.topology.numa_nodes .* 0, .* 1:"),
    "gpu-numa": other_node("perlmutter", "babelstream_gpu.*per-gpu", "gpu-numa",
                           r"extras.gpu_affinity .*GPU 1 .* 2, .*\(\S+\) at 3"),
    "gpu-throttled": passed("perlmutter", "babelstream_gpu.*all-gpus", "device.throttled",
                            verdict="not-asserted",
                            kind="throttled", gpu=2),
    "gpu-throttled-amd": passed("frontier", "babelstream_gpu.*all-gpus", "device.throttled",
                                verdict="not-asserted",
                                kind="throttled", gpu=2),
    "gpu-narrow": passed("perlmutter", "commscope_gpu", "device.narrow-link", kind="narrow", gpu=1),
    "gpu-unread": passed("perlmutter", "osu_xccl_node .*=bcast", "device.not-read",
                         verdict="not-asserted", kind="unread"),
    "gpu-numa-without-gpus": passed("perlmutter", "p2p.*=bw .*host-to-host",
                                    verdict="not-asserted", kind="gpu-numa"),
    # What is too good to be measured.
    # Reads of a cache: nine times what one building block gave, more than twelve ports carry.
    "ior-nine-times": above_ceiling("summit", "ior_building_block.*sequential", factor=1 / 9),
    "ior-twice": passed("summit", "ior_building_block.*random", TOO_GOOD, kind="slow",
                        factor=1 / 2),
    # Its latencies, which have no ceiling, are three times too low as well.
    "commscope-over-nvlink": above_ceiling("summit", "commscope_d2d.*gpu-a", TOO_GOOD,
                                           factor=1 / 3),
    "osu-over-nvlink": above_ceiling("summit", "osu_gpu.*=bw .*=gpu-a %", factor=1 / 3),
    "xccl-over-nvlink": above_ceiling("summit", "osu_xccl_gpu.*=bw .*=gpu-a ", factor=1 / 3),
    "xccl-over-the-network": above_ceiling("summit", "osu_xccl_nodes.*=allreduce",
                                           factor=1 / 9),
    "osu-over-the-network": above_ceiling("summit", "p2p .*=bw .*off-node.*spectrum",
                                          factor=1 / 9),
    "osu-ten-times-faster": passed("perlmutter", "p2p.*=latency .*host-to-host", TOO_GOOD,
                                   kind="slow", factor=1 / 10),
    "gpcnet-published": passed("summit", "gpcnet_load.*=port-0330 .*4500x6", "figure.no-congestion",
                               kind="quiet", factor=1.02),
    "gpcnet-small": passed("summit", "gpcnet_load.*=port-03 .*10x2", "figure.no-congestion",
                           verdict="not-asserted", kind="quiet"),
    # A network that keeps the traffics apart.
    "gpcnet-healthy": passed("summit", "gpcnet_load.*=port-0330 .*10x2", verdict="not-asserted",
                             kind="quiet", factor=1.02),
}  # fmt: skip

#: A system of each scheduler -> its words for a job that it ended: for its time, by its owner, with
#: its node. A signal alone does not say who sent it.
LOST = {
    "perlmutter": ("TIMEOUT", "CANCELLED", "NODE_FAIL"),
    "summit": ("TERM_RUNLIMIT", "TERM_OWNER", "TERM_ZOMBIE"),
    "polaris": ("walltime", "terminated by", "-20"),
    "cielo": ("walltime", "SIGTERM", "-4"),
    "tioga": ("TIMEOUT", "CANCELED", "node failure"),
}
for _system, (_time, _owner, _node) in LOST.items():
    _signal = "ended-by-scheduler" if _owner == "SIGTERM" else "cancelled"
    FAULTS |= {
        f"time-{_system}": ended(
            _system, "^babelstream_numa", "TIMEOUT", "time-limit", _time
        ),
        f"owner-{_system}": ended(
            _system, "^babelstream .*one-core", "CANCELLED", _signal, _owner
        ),
    }  # fmt: skip
    if _node:
        FAULTS[f"node-{_system}"] = ended(
            _system, "^babelstream .*all-cores", "NODE_FAIL", "node-failed", _node
        )

#: The launchers of these set none of the variables by which OSU finds the local rank.
WITHOUT_LOCAL_RANK = ["polaris", "rzvernal", "tioga"]

#: What OSU repeats less.
ITERATIONS = {
    "p2p": "osu_p2p.*=latency .*on-node",
    "one_sided": "osu_one_sided.*=fop_latency .*on-node",
    "collective": "osu_collective.*=barrier .*full-node",
}

SOUND = {
    **{
        f"gpus-{system}": Wrong(system, "osu_gpu.*=latency .*=gpu-a %", [], "pass")
        for system in WITHOUT_LOCAL_RANK
    },
    **{
        f"xccl-{system}": Wrong(system, "osu_xccl_nodes.*=alltoall", [], "pass")
        for system in WITHOUT_LOCAL_RANK
    },
    **{
        f"iterations-{name}": Wrong("eagle", check, [], "pass")
        for name, check in ITERATIONS.items()
    },
}

#: What a session is called with beside its cases.
OPTIONS = {
    "perlmutter": ["-S", "osu_xccl_node.start_seconds=15"],
    "summit": ["-S", "gpcnet_load.num_samples=3"],
    "eagle": [word for name in ITERATIONS for word in ("-S", f"osu_{name}.iterations=70")],
}

Records = Callable[[str], tuple[dict, foreign.Session]]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The record of a name of FAULTS or SOUND, and its session."""
    cases: dict[str, list[Wrong]] = defaultdict(list)
    for one in [*FAULTS.values(), *SOUND.values()]:
        cases[one.system].append(one)
    sessions: dict[str, foreign.Session] = {}

    def of(name: str) -> tuple[dict, foreign.Session]:
        wrong = (FAULTS | SOUND)[name]
        system = wrong.system
        if system not in sessions:
            names = [one.case for one in cases[system]]
            assert len(set(names)) == len(names), "two faults of one case"
            folder = tmp_path_factory.mktemp(system)
            selected = [word for case in names for word in ("-n", f"/{foreign.hash_of(case)}")]
            faults = [
                fault | {"folder": foreign.stage_of(one.case)}
                for one in cases[system]
                for fault in one.faults
            ]
            arguments = ["--tag=.*", *OPTIONS.get(system, []), *selected]
            sessions[system] = foreign.session(folder, *arguments, fault=faults, system=system)
            failed = any(one.result != "pass" for one in cases[system])
            assert sessions[system].code == failed, sessions[system].output
            # Also those of burst buffers, which each node has its own of.
            left = list(folder.glob("file-systems/*/*"))
            assert not left, f"left on the file systems: {left}"
        found = [
            fields
            for fields in sessions[system].records
            if foreign.stage_of_record(fields) == foreign.stage_of(wrong.case)
        ]
        assert len(found) == 1, sessions[system].output
        return found[0], sessions[system]

    return of


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, record: Records) -> None:
    wrong, (fields, _) = FAULTS[name], record(name)
    assert (fields["result"], fields["code"]) == (wrong.result, wrong.code), fields["reason"]
    assert re.search(wrong.names, fields["reason"] or ""), fields["reason"]
    verdicts = {fom["verdict"] for fom in fields["foms"]}
    assert wrong.verdict in verdicts if wrong.verdict else not verdicts
    assert {warning["code"] for warning in fields["warnings"]} == wrong.warnings


def test_a_slow_gpu_is_named(record: Records) -> None:
    fields, _ = record("slow-gpu")
    verdicts = {fom["location"]: fom["verdict"] for fom in fields["foms"] if fom["reference"]}
    assert verdicts == {
        **dict.fromkeys(["gpu0-gpu3", "gpu1-gpu3", "gpu2-gpu3"], "fail"),
        **dict.fromkeys(["gpu0-gpu1", "gpu0-gpu2", "gpu1-gpu2"], "pass"),
    }


def test_a_throttled_gpu_is_reported_as_on_the_page(record: Records) -> None:
    _, session = record("gpu-throttled")
    # Which node a job gets depends on those that end before it.
    output, page = (
        re.sub(r"\bnid\d+", "NODE", text)
        for text in (session.output, shown("throttling.md", "was throttled"))
    )
    assert prints(output, page), session.output


def test_gpus_matter_where_the_placement_has_some(record: Records) -> None:
    assert record("gpu-numa-without-gpus")[0]["topology"] == "confirmed"


@pytest.mark.parametrize("system", WITHOUT_LOCAL_RANK)
def test_the_two_ranks_of_a_pair_measure_two_gpus(system: str, record: Records) -> None:
    fields, found = record(f"gpus-{system}")
    assert fields["result"] == "pass", fields["reason"]
    (printed,) = {
        float(row["value"])
        for row in machine.second_rows()
        if (row["system"], row["benchmark"], row["metric"]) == (system, "osu", "latency")
        and row["placement"] == "gpu-a"
    }
    asserted = [fom for fom in fields["foms"] if fom["verdict"] == "pass"]
    assert {fom["value"] for fom in asserted} == {printed}
    assert [task["local"] for task in fields["tasks"]] == [0, 1]
    assert all(len({*task["devices"].split(",")}) == 2 for task in fields["tasks"])
    errors = [path.read_text() for path in (found.folder / fields["output"]).glob("sample-*.err")]
    assert errors and not any("OMB" in text for text in errors)


@pytest.mark.parametrize("name", ITERATIONS)
def test_osu_repeats_as_often_as_it_is_told(name: str, record: Records) -> None:
    """What is repeated less is of another condition."""
    fields, found = record(f"iterations-{name}")
    assert fields["result"] == "pass", fields["reason"]
    assert fields["conditions"]["iterations"] == "70"
    assert " -i 70 -x 7" in (found.folder / fields["output"] / "rfm_job.sh").read_text()


def test_commscope_does_not_start_where_it_could_change_the_cpus(tmp_path: Path, dry_run) -> None:
    texts = "".join(script.text for script in dry_run("frontier").scripts)
    setting = tmp_path / "scaling_governor"
    (guard,) = set(re.findall(r"^for setting in .*/scaling_governor.*$", texts, re.M))
    guard = re.sub(r"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", str(setting), guard)

    def run() -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", f"{guard}\necho started\n"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run().stdout == "started\n"
    setting.write_text("powersave\n")
    stopped = run()
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert str(setting) in stopped.stderr


def test_what_gpus_report_is_recorded(record: Records) -> None:
    """Of the GPUs that are throttled or narrow, and of the others."""
    fields, _ = record("gpu-throttled")
    (node,) = fields["nodes"]
    devices = fields["devices"][node]
    assert [device["throttled"] for device in devices.values()] == [
        [], [], ["hw-thermal"], []
    ]  # fmt: skip
    assert {device["max_link"] for device in devices.values()} == {"gen 4 x16"}
    facts = fields["hosts"][node]
    assert [facts[f"gpu.{bus}.power_limit"] for bus in devices] == ["400"] * 4
    fields, _ = record("gpu-throttled-amd")
    (node,) = fields["nodes"]
    devices = fields["devices"][node]
    # amd-smi of MI250X does not know it, and rocm-smi does.
    hot = [bus for bus, device in devices.items() if device["throttled"] == ["thermal"]]
    assert hot == ["0000:c9:00.0"]
    assert all(device["throttled"] == [] for bus, device in devices.items() if bus not in hot)
    assert {device["max_link"] for device in devices.values()} == {"gen 4 x16"}
    facts = fields["hosts"][node]
    assert [facts[f"gpu.{bus}.power_limit"] for bus in devices] == ["560"] * 8
    narrow, _ = record("gpu-narrow")
    (links,) = ([d["link"] for d in of.values()] for of in narrow["devices"].values())
    assert links == ["gen 4 x16", "gen 4 x8", "gen 4 x16", "gen 4 x16"]
    unread, _ = record("gpu-unread")
    assert "devices" not in unread
