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
    bad = {fom["at"] for fom in fields["foms"] if fom["verdict"] == "fail"}
    assert bad == {"gpu0-gpu3", "gpu1-gpu3", "gpu2-gpu3"}
    assert "latency_8_gpu0-gpu3 = " in fields["reason"]
    good = {fom["at"] for fom in fields["foms"] if fom["verdict"] == "pass"}
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
                "TIMEOUT": "time-limit",
                "CANCELLED": "cancelled",
                "NODE_FAIL": "node-failed",
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
        assert fields["code"] == ("ended-by-scheduler" if words == "SIGTERM" else code)
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


def test_commscope_does_not_start_where_it_could_change_the_cpus(tmp_path: Path) -> None:
    golden = (foreign.ROOT / "tests" / "golden" / "frontier.txt").read_text()
    (guard,) = set(re.findall(r"^for setting in .*comm_scope would change.*$", golden, re.M))
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
