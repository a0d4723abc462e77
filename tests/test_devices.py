"""GPUs of the machine at hand: from what nvidia-smi and the kernel say to a partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from plumbline.placement import devices
from plumbline.placement.placement import lay_out
from plumbline.placement.topology import Topology

#: nvidia-smi's answer to the query, of two GPUs.
SAID = """\
00000000:18:00.0, 9.0, 143771, NVIDIA H200
00000000:2A:00.0, 9.0, 143771, NVIDIA H200
"""

PROCESSOR = {
    "topology": {
        "cores": [hex(1 << cpu) for cpu in range(4)],
        "sockets": ["0x3", "0xc"],
        "numa_nodes": ["0x3", "0xc"],
    }
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a nvidia-smi of its own, alone on PATH, and the kernel's folder of devices."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(devices, "_PCI", tmp_path / "pci")
    for bus, cpus in (("0000:18:00.0", "0-1"), ("0000:2a:00.0", "2-3")):
        (tmp_path / "pci" / bus).mkdir(parents=True)
        (tmp_path / "pci" / bus / "local_cpulist").write_text(f"{cpus}\n")
    return tmp_path


def says(machine: Path, text: str, code: int = 0) -> None:
    program = machine / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\nwhile read -r line; do echo \"$line\"; done <<'E'\n{text}E\nexit {code}\n"
    )
    program.chmod(0o755)


def test_two_gpus(machine: Path) -> None:
    says(machine, SAID)
    found, extras = devices.nvidia(range(4))
    assert found == [{"type": "gpu", "arch": "sm_90", "model": "NVIDIA H200", "num_devices": 2}]
    assert extras == {
        "gpu_affinity": [{"cpus": "0-1"}, {"cpus": "2-3"}],
        "gpu_memory": 143771 * 2**20,
        "pair_classes": {"gpu-a": [[0, 1]]},
    }
    topology = Topology.of_partition(PROCESSOR, found, extras)
    assert topology.vendor == "cuda"
    (pair,) = lay_out("gpu-a", topology)
    assert [task.cpus for task in pair.tasks] == [(0,), (2,)]


def test_cores_that_may_not_be_used_are_near_to_nothing(machine: Path) -> None:
    says(machine, SAID)
    found, extras = devices.nvidia([0])
    assert extras["gpu_affinity"] == [{"cpus": "0-1"}, {}]
    topology = Topology.of_partition(PROCESSOR, found, extras | {"usable_cpus": [0, 1]})
    assert [[core.cpus for core in gpu.cores] for gpu in topology.gpus] == [[(0,), (1,)]] * 2


@pytest.mark.parametrize("said", ["[N/A]", "[Not Supported]", "[Unknown Error]"])
def test_memory_that_is_not_told(said: str, machine: Path) -> None:
    says(machine, f"00000000:18:00.0, 12.1, {said}, NVIDIA GB10\n")
    found, extras = devices.nvidia(range(4))
    assert found[0]["arch"] == "sm_121"
    assert "gpu_memory" not in extras
    assert Topology.of_partition(PROCESSOR, found, extras).vendor == "cuda"


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("No devices were found\n", 0), (SAID, 9), ("Failed to initialize NVML\n", 15)],
)
def test_no_gpu(text: str, code: int, machine: Path) -> None:
    says(machine, text, code)
    assert devices.nvidia(range(4)) == ([], {})


def test_no_command(machine: Path) -> None:
    assert devices.nvidia(range(4)) == ([], {})
