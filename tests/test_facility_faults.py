"""What goes wrong at a facility, and what its staff are told of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import foreign
import pytest
from facility import machine

ONE = ["-S", "num_warmups=0", "-S", "num_samples=1"]

#: A check whose figures have references, on Perlmutter's GPUs.
GPU = "osu_gpu.*test=latency.*placement=gpu-a"


def session(folder: Path, *arguments: str, fault: object, system: str = "perlmutter"):
    foreign.prepare(system, folder)
    return foreign.run(system, folder, *ONE, *arguments, fault=fault)


def only(found: foreign.Session) -> dict:
    (fields,) = found.records
    return fields


def test_a_slow_gpu_is_named(tmp_path: Path) -> None:
    slow = {"kind": "slow", "gpu": 3, "factor": 1.5}
    fields = only(session(tmp_path, "-n", GPU, fault=slow))
    assert fields["result"] == "fail"
    bad = {fom["location"] for fom in fields["foms"] if fom["verdict"] == "fail"}
    assert bad == {"gpu0-gpu3", "gpu1-gpu3", "gpu2-gpu3"}
    assert "latency_8_gpu0-gpu3 = " in fields["reason"]
    good = {fom["location"] for fom in fields["foms"] if fom["verdict"] == "pass"}
    assert good == {"gpu0-gpu1", "gpu0-gpu2", "gpu1-gpu2"}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"kind": "binding"}, r"rank \d+ on nid\d+ may run on CPUs .* puts it on"),
        ({"kind": "singletons"}, r"ended with exit code|This test requires exactly two processes"),
        ({"kind": "crash"}, r"ended with exit code 139.*Segmentation fault"),
        ({"kind": "exit", "code": 7}, r"ended with exit code 7"),
    ],
)
def test_a_run_that_cannot_be_trusted_is_invalid(fault: dict, told: str, tmp_path: Path) -> None:
    fields = only(session(tmp_path, "-n", GPU, fault=fault))
    assert fields["result"] == "invalid"
    assert re.search(told, fields["reason"]), fields["reason"]
    assert not fields["foms"]


#: A system of each scheduler -> its scheduler's words of a job that it ended: for its time, by its
#: owner, with its node.
LOST = {
    "perlmutter": ("TIMEOUT after", "CANCELLED", "NODE_FAIL"),
    "summit": ("TERM_RUNLIMIT: ", "TERM_OWNER: ", "TERM_ZOMBIE: "),
    "polaris": ("walltime .* exceeded limit", "terminated by .*@", "Exit_status -20"),
    "cielo": ("walltime .* exceeded limit", "SIGTERM", ""),
    "tioga": ("TIMEOUT", "CANCELED", ""),
}


@pytest.mark.parametrize(
    ("system", "state", "code", "words"),
    [
        (system, state, code, told)
        for system, words in LOST.items()
        for (state, code), told in zip(
            {
                "TIMEOUT": "job.time-limit",
                "CANCELLED": "job.cancelled",
                "NODE_FAIL": "job.node-failed",
            }.items(),
            words,
            strict=True,
        )
        if told
    ],
)
def test_a_job_that_the_scheduler_ended_is_an_error_in_its_words(
    system: str, state: str, code: str, words: str, tmp_path: Path
) -> None:
    fault = [{"kind": "hang"}, {"kind": "state", "state": state}]
    found = session(tmp_path, "-n", "babelstream_numa", fault=fault, system=system)
    for fields in found.records:
        assert fields["result"] == "error", fields["reason"]
        assert re.search(f"(Slurm|LSF|PBS|flux) says .*{words}", fields["reason"])
        # A signal alone does not say who sent it.
        assert fields["code"] == ("job.ended-by-scheduler" if words == "SIGTERM" else code)
    assert found.records and found.code == 1


@pytest.mark.parametrize("system", ["polaris", "rzvernal", "tioga"])
def test_the_two_ranks_of_a_pair_measure_two_gpus(system: str, tmp_path: Path) -> None:
    """Their launchers set none of the variables by which OSU finds the local rank."""
    found = session(tmp_path, "-n", GPU, fault=None, system=system)
    fields = only(found)
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
    said = [path.read_text() for path in found.folder.glob("output/**/sample-*.err")]
    assert said
    assert not any("OMB" in text for text in said)


#: What the node has otherwise than its file in systems/ says, and the entry that is named.
OTHERWISE = [
    ("smt", "perlmutter", GPU, "processor.topology.cores", "SMT: 2 hardware threads of a core, "),
    ("package", "summit", "osu_p2p.*=latency%.*on-node", "processor.topology.sockets", "CPU 0 "),
    ("package", "perlmutter", GPU, "processor.topology.sockets", "CPU 0 is in one with 0,2,4"),
    ("numa", "summit", "osu_p2p.*=latency%.*on-node", "extras.numa_os_numbers", "domain 0; "),
    ("numa", "eagle", "osu_p2p.*=latency%.*on-node", "processor.topology.numa_nodes", "domain 0; "),
    ("gpu-numa", "perlmutter", GPU, "extras.gpu_affinity", r"GPU 1 .*domain 2; .* \(\S+\) at 3"),
]


@pytest.mark.parametrize(
    ("kind", "system", "check", "entry", "told"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in OTHERWISE],
)
def test_a_node_that_is_not_as_its_file_says_is_invalid(
    kind: str, system: str, check: str, entry: str, told: str, tmp_path: Path
) -> None:
    found = session(tmp_path, "-n", check, fault={"kind": kind}, system=system)
    assert found.records
    for fields in found.records:
        assert fields["result"] == "invalid"
        assert f"{system}.yaml, partition {fields['partition']}: " in fields["reason"]
        assert re.search(rf"{re.escape(entry)} says .*{told}", fields["reason"]), fields["reason"]
        assert not fields["foms"]


def test_gpus_matter_where_the_placement_has_some(tmp_path: Path) -> None:
    fault = {"kind": "gpu-numa"}
    fields = only(session(tmp_path, "-n", "osu_p2p.*=latency%.*host-to-host", fault=fault))
    assert (fields["result"], fields["topology"]) == ("pass", "confirmed")


def test_the_folder_on_a_file_system_goes_also_after_a_crash(tmp_path: Path) -> None:
    """On burst buffers, which each node has its own of, the job's own tasks remove it."""
    for number, check in enumerate(["ior_random.*burst-buffer", "mdtest.*alpine"]):
        folder = tmp_path / str(number)
        found = session(folder, "-n", check, fault={"kind": "crash"}, system="summit")
        assert only(found)["result"] == "invalid"
        assert (folder / "file-systems" / "burst-buffer").is_dir()
        assert not list(folder.glob("file-systems/*/*"))


def test_commscope_does_not_start_where_it_could_change_the_cpus(tmp_path: Path, dry_run) -> None:
    texts = "".join(script.text for script in dry_run("frontier").scripts)
    (guard,) = set(re.findall(r"^for setting in .*comm_scope would change.*$", texts, re.M))
    setting = tmp_path / "scaling_governor"
    guard = re.sub(r"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", str(setting), guard)
    script = f"{guard}\necho started\n"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "started\n"
    setting.write_text("powersave\n")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(setting) in done.stderr


def test_osu_repeats_as_often_as_it_is_told(tmp_path: Path) -> None:
    """What is repeated less is of another condition: it is not held against what was not."""
    wanted = [
        "-n",
        "osu_p2p.*=latency%.*on-node|osu_one_sided.*=fop_latency%.*on-node|osu_collective.*barrier",
    ]
    told = [
        word
        for c in ("p2p", "one_sided", "collective")
        for word in ("-S", f"osu_{c}.iterations=70")
    ]
    found = session(tmp_path, *wanted, *told, fault=None, system="eagle")
    assert {f["check"].split()[0] for f in found.records} == {
        "osu_p2p",
        "osu_one_sided",
        "osu_collective",
    }
    for fields in found.records:
        assert fields["result"] == "pass", fields["reason"]
        assert fields["conditions"]["iterations"] == "70"
    scripts = [*found.folder.glob("output/**/rfm_job.sh")]
    assert len(scripts) == len(found.records)
    assert all(" -i 70 -x 7" in script.read_text() for script in scripts)


#: What a program says of itself that is not what it was asked for: system, check, and what is
#: printed in place of what.
MISMATCHES = {
    "osu-host-buffers": (
        *("perlmutter", GPU, r"^# Size"),
        "# Send Buffer on HOST (H) and Receive Buffer on HOST (H)\n# Size",
        "buffer host",
    ),
    "osu-managed-buffers": (
        *("perlmutter", GPU, r"^# Size"),
        "# Send Buffer on DEVICE (D) and Receive Buffer on MANAGED (MD)\n# Size",
        "buffer device-managed",
    ),
    "osu-accelerator-on-hosts": (
        *("eagle", "osu_p2p.*=latency%.*on-node", r"OSU MPI Latency", "OSU MPI-CUDA Latency"),
        "accelerator cuda",
    ),
    "gpcnet-nodes": (
        *("summit", "gpcnet_network", r"\(2 nodes\)", "(1 nodes)"),
        "nodes 1",
    ),
    "mdtest-items": (
        *("summit", "mdtest%.*alpine", r"^(\d+ tasks), 4000 files", r"\1, 400 files"),
        "items 400",
    ),
    "mdtest-nodes": (
        *("summit", "mdtest%.*alpine", r"on 2 node\(s\)", "on 1 node(s)"),
        "nodes 1",
    ),
    "commscope-debug": (
        *("perlmutter", "commscope_d2d", '"library_build_type": "release"'),
        '"library_build_type": "debug"',
        "debug",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_program_that_did_something_else_is_invalid(name: str, tmp_path: Path) -> None:
    system, check, match, text, told = MISMATCHES[name]
    fault = {"kind": "rewrite", "match": match, "text": text}
    found = session(tmp_path, "-n", check, fault=fault, system=system)
    assert found.records, found.said
    for fields in found.records:
        assert (fields["result"], fields["foms"]) == ("invalid", []), fields
        assert told in fields["reason"]


#: What is too good to be measured: system, check, fault, and the verdict and codes that it gets.
TOO_GOOD = {
    # Reads of a cache: nine times what one building block gave, more than twelve ports carry.
    "ior-nine-times": ("summit", "ior_building_block.*sequential",
                       {"kind": "slow", "factor": 1 / 9}, "above-ceiling", set()),
    "ior-twice": ("summit", "ior_building_block.*sequential", {"kind": "slow", "factor": 1 / 2},
                  "pass", {"figure.better-than-reference"}),
    # Its latencies, which have no ceiling, are three times too low as well.
    "commscope-over-nvlink": ("summit", "commscope_d2d.*gpu-a",
                              {"kind": "slow", "factor": 1 / 3}, "above-ceiling",
                              {"figure.better-than-reference"}),
    "osu-over-nvlink": ("summit", "osu_gpu.*=bw%.*gpu-a", {"kind": "slow", "factor": 1 / 3},
                        "above-ceiling", set()),
    "osu-over-the-network": ("summit", "osu_p2p.*=bw%.*off-node",
                             {"kind": "slow", "factor": 1 / 9}, "above-ceiling", set()),
    "osu-ten-times-faster": ("perlmutter", GPU, {"kind": "slow", "factor": 1 / 10}, "pass",
                             {"figure.better-than-reference"}),
    "gpcnet-published": ("summit", "gpcnet_load.*=port-0330%.*=4500x6",
                         {"kind": "quiet", "factor": 1.02}, "pass", {"figure.no-congestion"}),
    "gpcnet-small": ("summit", "gpcnet_load.*port-03%.*=10x2", {"kind": "quiet"},
                     "not-asserted", {"figure.no-congestion"}),
    # A network that keeps the traffics apart.
    "gpcnet-healthy": ("summit", "gpcnet_load.*port-03%.*=10x2",
                       {"kind": "quiet", "factor": 1.02}, "not-asserted", set()),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_GOOD)
def test_what_is_too_good_is_seen(name: str, tmp_path: Path) -> None:
    system, check, fault, verdict, codes = TOO_GOOD[name]
    more = ["--tag=.*", "-S", "gpcnet_load.num_samples=3"]
    found = session(tmp_path, *more, "-n", check, fault=fault, system=system)
    assert found.records, found.said
    for fields in found.records:
        assert fields["result"] == ("fail" if verdict == "above-ceiling" else "pass")
        assert verdict in {fom["verdict"] for fom in fields["foms"]}
        notices = [n for n in fields["warnings"] if n["state"] == "suspicious"]
        assert codes == {n["code"] for n in notices}, notices
        if verdict == "above-ceiling":
            assert "beyond its ceiling" in fields["reason"]


def test_a_fault_on_standard_error_is_told_beside_good_numbers(tmp_path: Path) -> None:
    said = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks"
    found = session(tmp_path, "-n", GPU, fault={"kind": "says", "text": said})
    fields = only(found)
    assert (found.code, fields["result"]) == (0, "pass")
    assert [(n["state"], n["code"]) for n in fields["warnings"]] == [
        ("warnings", "stderr.out-of-memory")
    ]
