"""CPUs that were too hot, and limits of CPU time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_readings import codes, of, run
from plumbline.placement import proof
from test_node import SHELLS, Elsewhere


def test_cpus_that_were_too_hot() -> None:
    runs = "plumbline-cpu n1 before 3 1 3500000\nplumbline-cpu n1 after {} {} 2100000\n"
    assert codes(of(runs.format(3, 1))) == []
    found = of(runs.format(3, 1), runs.format(7, 2))
    assert codes(found) == ["cpu.throttled"]
    processors = found.processors("n1")
    assert processors is not None and vars(processors) == {
        "cores": 4, "packages": 1, "clock": 2100
    }  # fmt: skip
    # What happens between the runs is not of the program.
    apart = ["plumbline-cpu n1 before 0 0 -\nplumbline-cpu n1 after 0 0 -\n",
             "plumbline-cpu n1 before 5 5 -\nplumbline-cpu n1 after 5 5 -\n"]  # fmt: skip
    assert codes(of(*apart)) == []


def test_what_the_kernel_does_not_count_is_not_recorded() -> None:
    """CPUs without counters, without those of packages, and without a clock."""
    line = "plumbline-cpu n1 {} {} {} {}\n"
    for before, after, recorded in (
        (("-", "-", 3000000), ("-", "-", 2100000), {"clock": 2100}),
        ((3, "-", "-"), (5, "-", "-"), {"cores": 2}),
        ((3, 1, "-"), ("-", 1, "-"), {"packages": 0}),
    ):
        found = of(line.format("before", *before) + line.format("after", *after)).processors("n1")
        assert found is not None and found.model_dump(exclude_none=True) == recorded
    nothing = line.format("before", "-", "-", "-") + line.format("after", "-", "-", "-")
    assert of(nothing).processors("n1") is None


#: What the kernel has of a task's control groups, and the fact.
V1, V2 = "3:cpu,cpuacct:/job/step\n2:cpuset:/\n1:name=systemd:/", "0::/job/step"
QUOTAS = {
    "no-controller": ("2:cpuset:/", {}, None),
    "root": ("0::/", {}, None),
    "v2-none": (V2, {"job/step/cpu.max": "max 100000", "job/cpu.max": "max 100000"}, "none"),
    "v2-above": (V2, {"job/step/cpu.max": "max 100000", "job/cpu.max": "50000 100000"}, "50 %"),
    "v2-least": (V2, {"job/step/cpu.max": "300000 100000", "job/cpu.max": "5000 10000"}, "50 %"),
    "v1-none": (V1, {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "9"}, "none"),
    "v1": (
        V1,
        {"cpu/job/step/cpu.cfs_quota_us": "2500", "cpu/job/step/cpu.cfs_period_us": "10000"},
        "25 %",
    ),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("groups", "files", "quota"), QUOTAS.values(), ids=QUOTAS)
def test_a_limit_of_cpu_time_is_a_fact_of_the_host(
    groups: str, files: dict[str, str], quota: str | None, shell: str, tmp_path: Path
) -> None:
    node = Elsewhere(tmp_path)
    node.write("proc/self/cgroup", groups)
    for name, text in files.items():
        node.write(f"sys/fs/cgroup/{name}", text)
    done = run(shell, node.script, "0", "true")
    (facts,) = proof.host_facts(done.stderr).values()
    assert facts.get("cpu.quota") == quota
    assert "cgroup" not in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_the_wrapper_reads_the_kernels_counters(shell: str, tmp_path: Path) -> None:
    """One of each core and package, of which the second has two threads: not the largest alone."""
    node = Elsewhere(tmp_path)
    node.cpus(["0", "1-2"], ["0", "1-2"], {})
    for n in {0, 1, 2, *os.sched_getaffinity(0)}:
        folder = f"sys/devices/system/cpu/cpu{n}"
        node.write(f"{folder}/cpufreq/scaling_cur_freq", "2100000\n")
        node.write(f"{folder}/cpufreq/scaling_max_freq", f"{3 if n else 2}500000\n")
    counters = [
        f"sys/devices/system/cpu/cpu{n}/thermal_throttle/{of}_throttle_count"
        for of in ("core", "package")
        for n in range(3)
    ]
    for name, count in zip(counters, (2, 2, 2, 1000, 5, 5), strict=True):
        node.write(name, f"{count}\n")
    now = zip(counters, (2, 9, 9, 1000, 60, 60), strict=True)
    words = "; ".join(f"echo {count} >{tmp_path / name}" for name, count in now)
    done = run(shell, node.script, "0", "sh", "-c", f"{words}; exit 7")
    assert done.returncode == 7
    assert proof.host_facts(done.stderr)["n1"]["cpu.max_frequency"] == "2500000-3500000"
    processors = of(done.stderr).processors("n1")
    assert processors is not None and vars(processors) == {
        "cores": 7, "packages": 55, "clock": 2100
    }  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS)
def test_the_wrapper_reads_the_clock_without_counters(shell: str, tmp_path: Path) -> None:
    """Of CPUs that are not Intel's; without a clock either, the task becomes the program."""
    node = Elsewhere(tmp_path)
    assert "plumbline-cpu" not in run(shell, node.script, "1", "true").stderr
    (cpu, *_) = sorted(os.sched_getaffinity(0))
    clock = f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"
    node.write(clock, "3400000")
    done = run(shell, node.script, "1", "sh", "-c", f"echo 2450000 >{tmp_path / clock}; exit 7")
    assert done.returncode == 7
    found = of(done.stderr)
    processors = found.processors("n1")
    assert processors is not None
    assert processors.model_dump(exclude_none=True) == {"clock": 2450}
    assert codes(found) == []
