"""GPUs of this machine: from what nvidia-smi and the kernel report to a partition."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import facility
import pytest
import yaml
from conftest import ROOT
from gpu_readings import OUTSIDE_GROUPS
from plumbline.check import tasks
from plumbline.check.outcomes import Refused, Skip
from plumbline.check.parameters import DEFAULT
from plumbline.check.placed import Placed
from plumbline.operate.onboarding import steps
from plumbline.placement import devices
from plumbline.placement.binding import BindingError, bind
from plumbline.placement.placement import lay_out, of_one_node
from plumbline.placement.topology import Topology

#: What the tools printed, or print by the format of their source.
SMI = ROOT / "tests" / "captures" / "smi"

#: nvidia-smi's answer to the query, of two GPUs.
OUTPUT = """\
00000000:18:00.0, 9.0, Disabled, 143771, NVIDIA H200
00000000:2A:00.0, 9.0, Disabled, 143771, NVIDIA H200
"""

#: nvidia-smi topo -m: of two GPUs.
TWO = """\
\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tPHB\t0-1\t0\t\tN/A
GPU1\tPHB\t X \t2-3\t0\t\tN/A

Legend:

  X    = Self
"""

#: Of the four A100 of a node of two sockets, bridged in pairs, with a network card.
BRIDGED = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tNODE\tSYS\tPXB\t0-1\t0
GPU1\tNV12\t X \tSYS\tSYS\tSYS\t0-1\t0
GPU2\tNODE\tSYS\t X \tNV12\tSYS\t2-3\t1
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t2-3\t1
NIC0\tPXB\tSYS\tSYS\tSYS\t X \t\t
"""

#: Of the eight V100 of a DGX-1: two, one, or no NVLinks.
DGX1 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\t0-19
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\t0-19
GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\t0-19
GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\t0-19
GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\t20-39
GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\t20-39
GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\t20-39
GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \t20-39
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


def prints(machine: Path, text: str, code: int = 0, topo: str = TWO, name="nvidia-smi") -> None:
    """A command prints a text, and another one when it is asked for the links."""
    program = machine / name
    loop = 'while IFS= read -r line; do echo "$line"; done'
    program.write_text(
        f"#!/bin/sh\ncase $1 in topo*|--showtopo) {loop} <<'E'\n{topo}E\n;;\n"
        f"*) {loop} <<'E'\n{text}E\n;;\nesac\nexit {code}\n"
    )
    program.chmod(0o755)


def test_two_gpus(machine: Path) -> None:
    prints(machine, OUTPUT)
    found, extras, _ = devices.detect(range(4))
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


@pytest.mark.parametrize(
    ("cells", "unknown"), [("9.0, ", "compute_cap"), ("9.0, Disabled, ", "mig.mode.current")]
)
def test_a_driver_that_does_not_know_a_field(cells: str, unknown: str, machine: Path) -> None:
    """Driver 470 has no compute_cap (candle issue 733), and those before 450 no MIG: all but the
    architecture is known."""
    prints(machine, OUTPUT.replace(cells, ""))
    program = machine / "nvidia-smi"
    refusal = f"""*{unknown}*) echo 'Field "{unknown}" is not a valid field to query.'; exit 2;;"""
    program.write_text(program.read_text().replace("case $1 in", f"case $1 in {refusal}", 1))
    found, extras, links = devices.detect(range(4))
    assert found == [{"type": "gpu", "model": "NVIDIA H200", "num_devices": 2}]
    assert extras["gpu_memory"] == 143771 * 2**20
    assert [*links] == ["gpu-a"]


def test_different_gpus(machine: Path) -> None:
    """Each kind is a device, and what is done on each of them fits the smallest."""
    prints(machine, OUTPUT.splitlines()[0] + "\n00000000:2A:00.0, 7.5, [N/A], 15360, Tesla T4\n")
    found, extras, _ = devices.detect(range(4))
    assert found == [
        {"type": "gpu", "arch": "sm_90", "model": "NVIDIA H200", "num_devices": 1},
        {"type": "gpu", "arch": "sm_75", "model": "Tesla T4", "num_devices": 1},
    ]
    assert extras["gpu_memory"] == 15360 * 2**20
    assert len(Topology.of_partition(PROCESSOR, found, extras).gpus) == 2


def skipped(found: list, extras: dict, runs: str) -> str:
    """The code with which each GPU's case is skipped, where those of another placement run."""
    topology = Topology.of_partition(PROCESSOR, found, extras)
    partition = SimpleNamespace(
        extras=extras, fullname="s:p", processor=SimpleNamespace(info=PROCESSOR),
        devices=[SimpleNamespace(info=found[0])],
    )  # fmt: skip
    (gpu, _), (other,) = lay_out("per-gpu", topology), lay_out(runs, topology)
    tasks.check_gpus(partition, other)
    check = Mock(current_partition=partition, layout=gpu)
    check.skip_case = lambda reason, code: Placed.skip_case(check, reason, code)
    with pytest.raises(Skip) as end:
        Placed.arrange(check)
    return end.value.code


def mig_row() -> str:
    """What a H200 in MIG mode printed, of the columns that it is asked for."""
    header, row = (SMI / "nvidia_h200mig_590_load.csv").read_text().splitlines()
    names = [name.partition(" ")[0] for name in header.split(", ")]
    cells = dict(zip(names, row.removesuffix("\n").split(", "), strict=True))
    return ", ".join(cells[name].removesuffix(" MiB") for name in devices._FIELDS)


def test_gpus_in_mig_mode(machine: Path) -> None:
    """nvidia-smi prints the whole GPU. The cases exist, with a reason not to run."""
    row = mig_row()
    prints(machine, f"{row}\n{row.replace(':83:', ':84:').replace('Enabled', 'Disabled')}\n")
    found, extras, _ = devices.detect(range(4))
    assert found == [{"type": "gpu", "arch": "sm_90", "model": "NVIDIA H200", "num_devices": 2}]
    assert extras["gpu_mode"] == "MIG"
    assert "per-gpu" in of_one_node(Topology.of_partition(PROCESSOR, found, extras))
    assert skipped(found, extras, "host-to-host") == "placement.mig"


#: GPUs and bus ids of two MI300A in TPX, as rocm-smi printed them (CHANGELOG of rocm_smi_lib 6.1.1,
#: ``--showhw``). Releases before print the partition as the function.
TPX = [f"000{gpu}:01:00.0" for gpu in range(2) for _ in range(3)]
TPX_OF_6_0 = [f"000{gpu}:01:00.{number}" for gpu in range(2) for number in range(3)]


@pytest.mark.parametrize("buses", [TPX, TPX_OF_6_0])
@pytest.mark.parametrize(
    ("compute", "memory", "mode"),
    [
        ("TPX", "NPS1", "TPX/NPS1"), ("TPX", None, "TPX"), ("SPX", "NPS1", None),
        ("UNKNOWN", "UNKNOWN", None), (None, None, None),
    ],
)  # fmt: skip
def test_partitions_of_amds_gpus(compute, memory, mode, buses: list[str], machine: Path) -> None:
    """Each is a GPU near the same CPUs; the memory that is printed is that of the whole."""
    cards = {
        f"card{n}": {"PCI Bus": bus, "Card Series": "MI300A", "GFX Version": "gfx942",
                     "VRAM Total Memory (B)": str(128 * 2**30)}
        for n, bus in enumerate(buses)
    }  # fmt: skip
    prints(machine, json.dumps(cards) + "\n", topo="", name="rocm-smi")
    for bus, cpus in (("0000:01:00.0", "0-1"), ("0001:01:00.0", "2-3")):
        (machine / "pci" / bus).mkdir()
        for name, text in (("local_cpulist", cpus), ("current_compute_partition", compute),
                           ("current_memory_partition", memory)):  # fmt: skip
            if text:
                (machine / "pci" / bus / name).write_text(f"{text}\n")
    found, extras, _ = devices.detect(range(4))
    assert found == [{"type": "gpu", "arch": "gfx942", "model": "MI300A", "num_devices": 6}]
    assert extras["gpu_affinity"] == [{"cpus": "0-1"}] * 3 + [{"cpus": "2-3"}] * 3
    assert (extras.get("gpu_mode"), "gpu_memory" in extras) == (mode, mode is None)
    topology = Topology.of_partition(PROCESSOR, found, extras)
    # They can be measured, and not be compared with whole ones.
    partition = SimpleNamespace(extras=extras, fullname="s:p", devices=[])
    (layout, *_), (host,) = lay_out("per-gpu", topology), lay_out("one-core", topology)
    tasks.check_gpus(partition, layout)
    for placed, conditions in ((layout, {"gpu_mode": mode} if mode else {}), (host, {})):
        check = Mock(current_partition=partition, layout=placed, active_variant=DEFAULT)
        check.conditions, check.env_vars, check.found.env_vars = {}, {}, {}
        Placed.apply_variant(check)
        assert check.conditions == conditions


#: PCI buses of four GPUs in the order of the kernel, of which rocm-smi's is the reverse
#: (llama-toolchest issue 121).
COUNTED = ("c7", "83", "43", "03")


@pytest.mark.parametrize("tool", ["rocm-smi", "amd-smi"])
@pytest.mark.parametrize("shown", [True, False])
def test_amds_gpus_are_in_the_order_in_which_programs_count_them(
    tool: str, shown: bool, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in that of the tool, if the kernel shows its own."""
    monkeypatch.setattr(devices, "_KFD", machine / "kfd")
    buses = sorted(COUNTED)
    near = dict(zip(buses, ("0-1", "0-1", "2-3", "2-3"), strict=True))
    for number, bus in enumerate(["", *COUNTED] if shown else []):
        file = machine / "kfd" / str(number) / "properties"
        file.parent.mkdir(parents=True)
        place = int(bus, 16) << 8 if bus else 0
        simds = 440 if bus else 0
        file.write_text(f"cpu_cores_count 2\nsimd_count {simds}\nlocation_id {place}\ndomain 0\n")
    for bus in buses:
        (machine / "pci" / f"0000:{bus}:00.0").mkdir()
        (machine / "pci" / f"0000:{bus}:00.0" / "local_cpulist").write_text(f"{near[bus]}\n")
    # The first GPU by bus id has another link to the second than to the others.
    weights = [[0, 15, 72, 72], [15, 0, 72, 72], [72, 72, 0, 40], [72, 72, 40, 0]]
    if tool == "rocm-smi":
        listed = {
            f"card{n}": {"PCI Bus": f"0000:{bus.upper()}:00.0", "Card Series": bus,
                         "GFX Version": "gfx90a"}
            for n, bus in enumerate(buses)
        }  # fmt: skip
        head = "       " + " ".join(f"GPU{n}" for n in range(4))
        rows = "\n".join(f"GPU{n} {' '.join(map(str, row))}" for n, row in enumerate(weights))
        types = "\n".join(f"GPU{n} XGMI XGMI XGMI XGMI" for n in range(4))
        links = "".join(
            f"===== {name} between two GPUs =====\n{head}\n{table}\n"
            for name, table in (("Weight", rows), ("Type", types))
        )
    else:
        listed = [
            {"gpu": n, "bus": {"bdf": f"0000:{bus}:00.0"},
             "asic": {"market_name": bus, "target_graphics_version": "gfx90a"}}
            for n, bus in enumerate(buses)
        ]  # fmt: skip
        links = json.dumps([
            {"gpu": n, "links": [{"gpu": m, "weight": w, "link_type": "XGMI"}
                                 for m, w in enumerate(row)]}
            for n, row in enumerate(weights)
        ]) + "\n"  # fmt: skip
    prints(machine, json.dumps(listed) + "\n", topo=links, name=tool)
    order = COUNTED if shown else tuple(buses)
    found = devices.detect(range(4))
    assert [device["model"] for device in found.devices] == [*order]
    assert found.extras["gpu_affinity"] == [{"cpus": near[bus]} for bus in order]
    of = {bus: number for number, bus in enumerate(order)}
    assert found.extras["pair_classes"]["gpu-a"] == [sorted([of["03"], of["43"]])]
    assert found.extras["pair_classes"]["gpu-b"] == [sorted([of["83"], of["c7"]])]
    assert len(found.extras["pair_classes"]["gpu-c"]) == 4


def test_cores_that_may_not_be_used_are_near_to_nothing(machine: Path) -> None:
    prints(machine, OUTPUT)
    found, extras, _ = devices.detect([0])
    assert extras["gpu_affinity"] == [{"cpus": "0-1"}, {}]
    topology = Topology.of_partition(PROCESSOR, found, extras | {"usable_cpus": [0, 1]})
    assert [[core.cpus for core in gpu.cores] for gpu in topology.gpus] == [[(0,), (1,)]] * 2


@pytest.mark.parametrize("memory", ["[N/A]", "[Not Supported]", "[Unknown Error]"])
def test_memory_that_is_unknown(memory: str, machine: Path) -> None:
    prints(machine, f"00000000:18:00.0, 12.1, [N/A], {memory}, NVIDIA GB10\n")
    found, extras, _ = devices.detect(range(4))
    assert found[0]["arch"] == "sm_121"
    assert "gpu_memory" not in extras
    assert Topology.of_partition(PROCESSOR, found, extras).vendor == "cuda"


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("No devices were found\n", 0), (OUTPUT, 9), ("Failed to initialize NVML\n", 15)],
)
def test_no_gpu(text: str, code: int, machine: Path) -> None:
    prints(machine, text, code)
    assert devices.detect(range(4)) == ([], {}, {})


#: nvidia-smi(1), "Return Value": 9 if the driver is not loaded; 18 if its version is not the
#: library's, of gputil's issue 55; 0 if no device is given to the job.
FAILED = [
    ("nvidia-smi", "0x10de", "0x030200", 9),
    ("nvidia-smi", "0x10de", "0x030200", 18),
    ("nvidia-smi", "0x10de", "0x030000", 0),
    ("rocm-smi", "0x1002", "0x038000", 1),
    ("amd-smi", "0x1002", "0x120000", 1),
]


@pytest.mark.parametrize(("name", "vendor", "kind", "code"), FAILED)
def test_gpus_whose_tool_fails(name, vendor: str, kind: str, code: int, machine: Path) -> None:
    """The node does not become one without GPUs: what needs them has a reason not to run."""
    prints(machine, "", code, topo="", name=name)
    # A NVSwitch, a sound device and the display of a management controller are none.
    others = {"0000:01": ("0x10de", "0x068000"), "0000:02": ("0x1002", "0x040300"),
              "0000:03": ("0x1a03", "0x030000")}  # fmt: skip
    gpus = dict.fromkeys(("0000:18", "0000:2a"), (vendor, kind))
    for bus, facts in (others | gpus).items():
        folder = machine / "pci" / f"{bus}:00.0"
        folder.mkdir(exist_ok=True)
        for file, text in zip(("vendor", "class"), facts, strict=True):
            (folder / file).write_text(f"{text}\n")
    found, extras, links = devices.detect(range(4))
    assert found == [{"type": "gpu", "num_devices": 2}]
    assert (extras, links) == ({"gpu_affinity": [{"cpus": "0-1"}, {"cpus": "2-3"}]}, {})
    (layout, _) = lay_out("per-gpu", Topology.of_partition(PROCESSOR, found, extras))
    with pytest.raises(BindingError) as refusal:
        bind(layout, "mpirun-openmpi")
    assert refusal.value.code == "binding.gpu-vendor-unknown"
    # Without the vendor's tool, nobody measures them.
    (machine / name).unlink()
    assert devices.detect(range(4)) == ([], {}, {})


@pytest.mark.parametrize(("kind", "found"), [("0x038000", True), ("0x030000", False)])
def test_intels_gpus_are_visible_and_not_supported(
    kind: str, found: bool, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of Aurora's nodes are displays without VGA; one with VGA is in a processor."""
    monkeypatch.setenv("PATH", str(machine))
    for bus in ("0000:18", "0000:2a"):
        folder = machine / "pci" / f"{bus}:00.0"
        folder.mkdir(exist_ok=True)
        (folder / "vendor").write_text("0x8086\n")
        (folder / "class").write_text(f"{kind}\n")
    seen, extras, _ = devices.detect(range(4))
    assert seen == [{"type": "gpu", "arch": "intel", "num_devices": 2}] * found
    if not found:
        return
    # Cases on the CPUs run; the others are skipped, with the reason, as no tool has failed.
    code = skipped(seen, {**extras, "detect": True}, "one-core")
    assert code == "placement.gpu-not-supported"
    # There is one thing to know about them.
    (item,) = steps._of_gpus({"devices": seen, "extras": extras})
    assert "[placement.gpu-not-supported]" in item


@pytest.mark.parametrize(
    ("extras", "dry", "expected"),
    [({"detect": True}, False, Refused), ({"detect": True}, True, Skip), ({}, False, Skip)],
)
def test_cases_on_gpus_whose_tool_fails(extras: dict, dry: bool, expected: type) -> None:
    """A skip would pass. A system file may have no arch yet, and a dry run lists what would run."""

    def lay_out(*_):
        raise BindingError("no arch", code="binding.gpu-vendor-unknown")

    processor = SimpleNamespace(info=PROCESSOR)
    partition = SimpleNamespace(extras=extras, processor=processor, devices=[])
    check = Mock(current_partition=partition, lay_out=lay_out, is_dry_run=lambda: dry)
    check.skip_case = lambda reason, code: Placed.skip_case(check, reason, code)
    with pytest.raises(expected) as end:
        Placed.arrange(check)
    assert end.value.code == "binding.gpu-vendor-unknown"


def test_no_command(machine: Path) -> None:
    assert devices.detect(range(4)) == ([], {}, {})


@pytest.mark.parametrize(
    ("count", "table", "classes", "links"),
    [
        (4, BRIDGED, {"gpu-a": ["01", "23"], "gpu-b": ["02"], "gpu-c": ["03", "12", "13"]},
         ["NV12", "NODE", "SYS"]),
        (8, DGX1, {"gpu-a": ["03", "04", "12", "15", "23", "47", "56", "67"],
                   "gpu-b": ["01", "02", "13", "26", "37", "45", "46", "57"],
                   "gpu-c": ["05", "06", "07", "14", "16", "17", "24", "25", "27", "34",
                             "35", "36"]},
         ["NV2", "NV1", "SYS"]),
        # A link that is not known, and a table that ends early: no pair is in a wrong class.
        (2, TWO.replace("PHB", "???"), None, []),
        (4, BRIDGED[:60], None, []),
    ],
)  # fmt: skip
def test_classes_of_pairs(machine: Path, count: int, table: str, classes, links: list[str]) -> None:
    """Pairs with the same link are of one class, the nearest first."""
    prints(machine, OUTPUT.splitlines()[0].join(["", "\n"]) * count, topo=table)
    found = devices.detect(range(4))
    expected = classes and {k: [[int(a), int(b)] for a, b in v] for k, v in classes.items()}
    assert found.extras.get("pair_classes") == expected
    assert list(found.links.values()) == [f"{link} (nvidia-smi topo -m)" for link in links]


def test_more_than_four_links(machine: Path) -> None:
    """The pairs of the fifth kind are in no class."""
    cells = ["NV2", "NV1", "PIX", "PXB", "SYS"]
    rows = ["\t" + "\t".join(f"GPU{n}" for n in range(6))]
    rows += [f"GPU{r}\t" + "\t".join(["X"] * (r + 1) + cells[: 5 - r]) for r in range(6)]
    prints(machine, OUTPUT.splitlines()[0].join(["", "\n"]) * 6, topo="\n".join(rows) + "\n")
    assert [*devices.detect(range(4)).links] == ["gpu-a", "gpu-b", "gpu-c", "gpu-d"]


@pytest.mark.parametrize("warning", ["", OUTSIDE_GROUPS])
def test_amd_without_rocm_smi(warning: str, machine: Path) -> None:
    """From ROCm 7 on, amd-smi replaces rocm-smi."""
    asic, topology = (
        (SMI / f"amd_format_{name}.json").read_text() for name in ("asic", "topology")
    )
    prints(machine, warning + asic, topo=warning + topology, name="amd-smi")
    for bus, cpus in (("0000:05:00.0", "0-1"), ("0000:26:00.0", "2-3")):
        (machine / "pci" / bus).mkdir()
        (machine / "pci" / bus / "local_cpulist").write_text(f"{cpus}\n")
    found = devices.detect(range(4))
    assert found.devices == [
        {"type": "gpu", "arch": "gfx942", "model": "AMD Instinct MI300X", "num_devices": 2}
    ]
    assert found.extras == {
        "gpu_affinity": [{"cpus": "0-1"}, {"cpus": "2-3"}],
        "gpu_memory": 196592 * 2**20,
        "pair_classes": {"gpu-a": [[0, 1]]},
    }
    assert found.links == {"gpu-a": "XGMI, weight 15 (amd-smi topology)"}
    assert Topology.of_partition(PROCESSOR, *found[:2]).vendor == "rocm"


def test_amd_in_a_virtual_machine(machine: Path) -> None:
    """amd-smi prints N/A for what it cannot read there. The runtime knows the architecture."""
    cards = json.loads((SMI / "amd_format_asic.json").read_text())
    for card in cards:
        card["asic"] = dict.fromkeys(card["asic"], "N/A")
        card["vram"] = "N/A"
    prints(machine, json.dumps(cards) + "\n", topo="", name="amd-smi")
    found = devices.detect(range(4))
    assert found.devices == [{"type": "gpu", "num_devices": 2}]
    assert found.extras == {"gpu_affinity": [{}, {}]}
    prints(machine, "gfx000\ngfx942\n", name="rocm_agent_enumerator")
    assert devices.detect(range(4)).devices == [{"type": "gpu", "arch": "gfx942", "num_devices": 2}]


def test_the_architectures_of_different_cards(machine: Path) -> None:
    cards = {f"card{n}": {"PCI Bus": f"0000:0{n}:00.0", "Card series": f"m{n}"} for n in (0, 1)}
    prints(machine, json.dumps(cards) + "\n", topo="", name="rocm-smi")
    prints(machine, "gfx000\ngfx90a\ngfx942\n", name="rocm_agent_enumerator")
    assert [device["arch"] for device in devices.detect(range(4)).devices] == ["gfx90a", "gfx942"]
    # Which card is which is not known.
    prints(machine, "gfx90a\ngfx942\ngfx942\n", name="rocm_agent_enumerator")
    assert not any("arch" in device for device in devices.detect(range(4)).devices)


@pytest.mark.parametrize("text", ["", "[]", "7", "[{}]", '[{"asic": 7}]', '{"gpu_data": null}'])
def test_an_amd_smi_that_is_of_no_use(text: str, machine: Path) -> None:
    prints(machine, text + "\n", name="amd-smi")
    assert devices.detect(range(4)) == ([], {}, {})


def test_rocm_smi_names_the_architecture(machine: Path) -> None:
    """As of ROCm 6.1; rocm_agent_enumerator is a program of its own."""
    prints(machine, (SMI / "rocm_rx6700xt_612.json").read_text(), name="rocm-smi")
    (found,) = devices.detect(range(4)).devices
    assert (found["arch"], found["model"]) == (
        "gfx1031", "Navi 22 [Radeon RX 6700/6700 XT / 6800M]",
    )  # fmt: skip


def test_the_gpus_of_a_node_of_frontier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rocm-smi prints the links of the machine, which the system file has as well: the weight
    says how near two GPUs are."""
    for name, value in facility.environment("frontier", tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FACILITY_JOB", "1")
    found = devices.detect(range(128))
    stated = yaml.safe_load((ROOT / "systems" / "frontier.yaml").read_text())
    (partition,) = (p for p in stated["systems"][0]["partitions"] if p.get("devices"))
    (device,) = partition["devices"]
    assert found.devices[0]["arch"] == device["arch"] == "gfx90a"
    assert found.devices[0]["num_devices"] == device["num_devices"] == 8
    classes = found.extras["pair_classes"]
    assert {name: sorted(map(sorted, pairs)) for name, pairs in classes.items()} == {
        name: sorted(map(sorted, partition["extras"]["pair_classes"][name])) for name in classes
    }
    assert found.links == {
        f"gpu-{name}": f"XGMI, weight {weight} (rocm-smi --showtopo)"
        for name, weight in zip("abcd", (15, 30, 45, 60), strict=True)
    }
    assert found.extras["gpu_memory"] == partition["extras"]["gpu_memory"]
    assert Topology.of_partition(PROCESSOR, *found[:2]).vendor == "rocm"
