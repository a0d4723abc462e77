"""What a node reports of itself, by the real task.sh, and how it is compared with its file."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from plumbline.placement import binding, proof
from plumbline.placement.node import (
    NodeDescription,
    NodeReport,
    TopologyMismatch,
    compare_node,
    read_nodes,
)
from plumbline.placement.proof import BindingMismatch
from plumbline.placement.topology import cpus_of_list
from plumbline.site import configuration

TASK = binding.WRAPPER


def masks(*lists: str) -> list[str]:
    return [hex(sum(1 << cpu for cpu in cpus_of_list(text))) for text in lists]


def groups(*lists: str) -> frozenset[frozenset[int]]:
    return frozenset(frozenset(cpus_of_list(text)) for text in lists)


# -- compared ------------------------------------------------------------------------------------


def power9(**extras: object) -> NodeDescription:
    """Two packages of two cores, four threads each; memory domains 0 and 8, a GPU at each."""
    topology = {
        "cores": masks("0-3", "4-7", "8-11", "12-15"),
        "sockets": masks("0-7", "8-15"),
        "numa_nodes": masks("0-7", "8-15"),
    }
    affinity = {"gpu_affinity": [{"numa": 0}, {"cpus": "8-15"}], "numa_os_numbers": [0, 8]}
    devices = [{"type": "gpu", "arch": "sm_70", "num_devices": 2}]
    return NodeDescription({"topology": topology}, devices, affinity | extras)


def reported(
    packages: str = "0-7 8-15",
    cores: str = "0-3 4-7 8-11 12-15",
    numa: str = "0=0-7 8=8-15",
    gpus: str = "0004:04:00.0=0 0035:03:00.0=8",
    modes: str = "",
) -> NodeReport:
    facts = {"packages": packages, "cores": cores, "numa": numa, "gpus": gpus, "modes": modes}
    text = "".join(f"plumbline-node a {name} {value}\n" for name, value in facts.items())
    ((hosts, node),) = read_nodes(text)
    assert hosts == ["a"]
    return node


def test_nodes_that_are_alike_are_read_once() -> None:
    """In whatever order their lines arrive, and as often as several tasks report them."""
    lines = [f"plumbline-node {host} {fact} 0-{last}\n" for fact in ("cores", "packages")
             for host, last in (("a", 3), ("b", 7), ("c", 3))]  # fmt: skip
    others = ["another line\n", "plumbline-node d\n", "plumbline-node \n"]
    found = [*read_nodes("".join([*lines, *others, *lines]))]
    assert [hosts for hosts, _ in found] == [["a", "c"], ["b"]]
    assert [node.cores for _, node in found] == [groups("0-3"), groups("0-7")]


def test_a_node_as_its_file_says() -> None:
    assert compare_node(power9(), "a", reported(), gpus=True)
    # In whatever order.
    assert compare_node(power9(), "a", reported("8-15 0-7", numa="8=8-15 0=0-7"), gpus=True)


@pytest.mark.parametrize(
    ("node", "gpus"),
    [
        ({"packages": "", "cores": "", "numa": "", "gpus": ""}, False),
        ({"numa": ""}, False),
        ({"cores": ""}, False),
        ({"packages": ""}, False),
        ({"gpus": ""}, True),
        # The firmware says nothing, or a device cgroup hides it.
        ({"gpus": "0004:04:00.0=-1 0035:03:00.0=8"}, True),
        ({"gpus": "?=? 0035:03:00.0=8"}, True),
    ],
)
def test_what_a_node_does_not_show_is_unconfirmed(node: dict, gpus: bool) -> None:
    assert not compare_node(power9(), "a", reported(**node), gpus)
    if gpus:
        assert compare_node(power9(), "a", reported(**node), gpus=False)


def difference(described: NodeDescription, node: NodeReport, gpus: bool = True) -> str:
    """The message about a node that differs from its description."""
    with pytest.raises(TopologyMismatch) as refusal:
        compare_node(described, "a", node, gpus=gpus)
    assert refusal.value.code == "topology.mismatch"
    return str(refusal.value)


@pytest.mark.parametrize(
    ("node", "pattern"),
    [
        ({"packages": "0-15"}, r"topology\.sockets .* 0-7 .* 0-15"),
        ({"packages": "0-3,8-11 4-7,12-15"}, r"topology\.sockets "),
        ({"cores": "0-1 2-3 4-7 8-11 12-15"}, r"topology\.cores .* 0-3 .* 0-1"),
        ({"numa": "0=0-3,8-11 8=4-7,12-15"}, r"topology\.numa_nodes .* 0-7"),
        ({"numa": "0=0-7 1=8-15"}, r"extras\.numa_os_numbers .* 8-15 .* 8, .* 1"),
        ({"gpus": "0004:04:00.0=0"}, r"devices .* 2 .* 1"),
        ({"gpus": "0004:04:00.0=8 0035:03:00.0=8"}, r"gpu_affinity .* GPU 0 .* 0, .* \(0004:"),
        ({"gpus": "0004:04:00.0=0 0035:03:00.0=0"}, r"gpu_affinity .* GPU 1 .* 8, .* \(0035:"),
    ],
)
def test_a_node_that_differs(node: dict, pattern: str) -> None:
    message = difference(power9(), reported(**node))
    assert re.search(pattern, message) and ";" not in message


def test_threads_that_are_off_are_a_difference_of_the_cores_alone() -> None:
    message = difference(power9(), reported("0,4 8,12", "0 4 8 12", "0=0,4 8=8,12"))
    assert re.search(r"cores .*SMT: 4 .* 1\)", message)
    assert "sockets" not in message and "numa" not in message
    # A core less, and one more.
    fewer = difference(power9(), reported("0-7 8-11", "0-3 4-7 8-11", "0=0-7 8=8-11"))
    assert re.search(r"CPUs 12-15 .* CPU 12 ", fewer)
    assert "CPUs 16-19 " in difference(power9(), reported(cores="0-3 4-7 8-11 12-15 16-19"))


def test_domains_without_numbers_of_their_own() -> None:
    unnumbered = power9(numa_os_numbers=[])
    assert compare_node(unnumbered, "a", reported(numa="0=0-7 1=8-15"), gpus=False)
    message = difference(unnumbered, reported(), gpus=False)
    assert re.search(r"topology\.numa_nodes .* domain 1, .* 8", message)


@pytest.mark.parametrize(
    ("described", "modes", "same"),
    [
        ("", "MIG MIG", False),
        ("", "CPX/NPS4 CPX/NPS4", False),
        ("", "SPX/NPS1 CPX/NPS1", False),
        ("CPX/NPS4", "CPX/NPS1 CPX/NPS1", False),
        ("CPX/NPS4", "SPX/NPS1 SPX/NPS1", False),
        ("", "SPX/NPS1 SPX/NPS1", True),
        ("CPX/NPS4", "CPX/NPS4", True),
        # The kernel does not show it.
        ("CPX/NPS4", "", True),
    ],
)
def test_gpus_that_are_divided(described: str, modes: str, same: bool) -> None:
    """A part of a GPU is never measured as a whole one, whatever their number."""
    entry = power9(gpu_mode=described) if described else power9()
    node = reported(modes=modes)
    assert compare_node(entry, "a", node, gpus=False)
    if same:
        assert compare_node(entry, "a", node, gpus=True)
        return
    with pytest.raises(TopologyMismatch) as refusal:
        compare_node(entry, "a", node, gpus=True)
    assert refusal.value.code == "topology.gpu-mode"


@pytest.mark.parametrize("line", ["numa 0-7", "cores x", "gpus 0004:04:00.0", "numa x=0-7"])
def test_a_garbled_report(line: str) -> None:
    with pytest.raises(BindingMismatch) as refusal:
        [*read_nodes(f"plumbline-node a {line}\n")]
    assert refusal.value.code == "proof.unreadable"


# -- reported ------------------------------------------------------------------------------------

SHELLS = [shell for shell in ("dash", "bash", "busybox sh") if shutil.which(shell.split()[0])]


def run_task(shell: str, script: Path, **env: str) -> str:
    """What the task wrapper writes on standard error in an environment of these alone."""
    done = subprocess.run(
        [*shell.split(), str(script), "0", "true"],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_this_machine_is_as_it_was_detected(shell: str) -> None:
    ((_, node),) = read_nodes(run_task(shell, TASK))
    partition = configuration.this_machine()
    described = NodeDescription(partition["processor"], partition["devices"], partition["extras"])
    shown = Path("/sys/devices/system/node/node0/cpulist").exists()
    assert compare_node(described, platform.node(), node, gpus=False) == shown


class Elsewhere:
    """A machine in a folder: task.sh with its /sys, /proc and /dev."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.script = folder / "task.sh"
        text = TASK.read_text()
        places = r"(?<!/proc)/sys/|/proc/(?=driver/|self/cgroup|cpuinfo)|/dev/(?=nvidia|dri/)"
        self.script.write_text(re.sub(places, lambda found: f"{folder}{found[0]}", text))
        self.write("proc/self/cgroup")
        self.write("proc/cpuinfo")

    def write(self, path: str, text: str = "") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def cpus(self, packages: list[str], cores: list[str], numa: dict[int, str]) -> None:
        for name, lists in (("core_siblings_list", packages), ("thread_siblings_list", cores)):
            for text in lists:
                for cpu in cpus_of_list(text):
                    self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/{name}", text)
        for number, text in numa.items():
            self.write(f"sys/devices/system/node/node{number}/cpulist", text)

    def nvidia(self, bus: str, minor: int, numa: int, opens: bool = True) -> None:
        text = f"Model: \t\t NVIDIA A100\nDevice Minor: \t {minor}\nGPU Excluded:\t No"
        self.write(f"proc/driver/nvidia/gpus/{bus}/information", text)
        self.write(f"sys/bus/pci/devices/{bus}/numa_node", str(numa))
        if opens:
            self.write(f"dev/nvidia{minor}")

    def amd(
        self, number: int, bus: str = "", numa: int = 0, opens: bool = True,
        links: tuple[tuple[int, int], ...] = (),
    ) -> None:  # fmt: skip
        """A node of KFD: a processor where it has no bus id.

        :arg links: other nodes, each with the type of the link, as kfd_crat.h has them.
        """
        folder = f"sys/class/kfd/kfd/topology/nodes/{number}"
        for other, kind in links:
            text = f"type {kind}\nversion_major 0\nnode_from {number}\nnode_to {other}\nweight 15"
            self.write(f"{folder}/io_links/{other}/properties", text)
        minor = 128 + number if bus else 0
        simds = 440 if bus else 0
        text = f"cpu_cores_count 64\nsimd_count {simds}\ndrm_render_minor {minor}"
        self.write(f"{folder}/properties", text if opens else "")
        if bus:
            device = f"sys/class/drm/renderD{minor}/device"
            self.write(f"{device}/uevent", f"DRIVER=amdgpu\nPCI_SLOT_NAME={bus}\nMODALIAS=pci:v1")
            self.write(f"{device}/numa_node", str(numa))
        if bus and opens:
            self.write(f"dev/dri/renderD{minor}")

    def node(self, shell: str) -> NodeReport:
        ((_, node),) = read_nodes(run_task(shell, self.script))
        return node

    def devices(self, shell: str, **env: str) -> str:
        (task,) = proof.read_tasks(run_task(shell, self.script, **env))
        return task.devices


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_power9_node(shell: str, elsewhere: Elsewhere) -> None:
    """Domains of GPU memory have no CPUs; an offline CPU has no topology."""
    cores = [f"{cpu}-{cpu + 3}" for cpu in range(0, 176, 4)]
    elsewhere.cpus(["0-87", "88-175"], cores, {0: "0-87", 8: "88-175", 252: "", 255: ""})
    elsewhere.write("sys/devices/system/cpu/cpu176/online", "0")
    node = elsewhere.node(shell)
    assert node == NodeReport(
        groups("0-87", "88-175"),
        groups(*cores),
        {0: frozenset(range(88)), 8: frozenset(range(88, 176))},
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_machine_that_shows_nothing(shell: str, elsewhere: Elsewhere) -> None:
    assert elsewhere.node(shell) == NodeReport()


#: The first CPU and what follows it in /proc/cpuinfo of three nodes of hwloc's test suite
#: (tests/hwloc/linux), shortened.
CPUINFO = {
    "offline-cpu0-node0": (
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 63\n"
        "model name\t: Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz\nstepping\t: 2\n"
        "microcode\t: 0x43\ncpu MHz\t\t: 2500.000\ncpuid level\t: 15\n\nprocessor\t: 1\n"
        "model name\t: another\nmicrocode\t: 0x44",
        {"cpu_model": "Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz", "microcode": "0x43"},
    ),
    "nvidia-dgx-gb10": (
        "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd87\nCPU revision\t: 1\n\n"
        "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd85",
        {"cpu_model": "implementer 0x41 variant 0x0 part 0xd87 revision 1"},
    ),
    "nvidiagpunumanodes": (
        "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3450.000000MHz\n"
        "revision\t: 2.1 (pvr 004e 1201)\n\nplatform\t: PowerNV\nmodel\t\t: 8335-GTW",
        {"cpu_model": "POWER9, altivec supported 2.1 (pvr 004e 1201)"},
    ),
}


@pytest.mark.parametrize(("text", "expected"), CPUINFO.values(), ids=CPUINFO)
@pytest.mark.parametrize("shell", SHELLS)
def test_the_model_of_the_cpus(shell: str, text: str, expected, elsewhere: Elsewhere) -> None:
    elsewhere.write("proc/cpuinfo", text)
    (facts,) = proof.host_facts(run_task(shell, elsewhere.script)).values()
    assert {name: facts.get(name) for name in expected} == expected
    assert ("microcode" in facts) == ("microcode" in expected)


@pytest.mark.parametrize("shell", SHELLS)
def test_governors(shell: str, elsewhere: Elsewhere) -> None:
    """One CPU may have another governor than the first."""
    for cpu, name in enumerate(["powersave", "performance", "powersave"]):
        elsewhere.write(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", name)
    (facts,) = proof.host_facts(run_task(shell, elsewhere.script)).values()
    assert facts["governor"] == "performance,powersave"


@pytest.mark.parametrize("shell", SHELLS)
def test_nvidias_gpus(shell: str, elsewhere: Elsewhere) -> None:
    """By bus id, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them, whatever their minor numbers."""
    for minor, bus, numa in (
        (1, "0000:07:00.0", 3),
        (0, "0000:46:00.0", 2),
        (2, "0000:85:00.0", -1),
    ):
        elsewhere.nvidia(bus, minor, numa)
    assert elsewhere.node(shell).gpus == (
        ("0000:07:00.0", 3),
        ("0000:46:00.0", 2),
        ("0000:85:00.0", None),
    )
    assert elsewhere.devices(shell, CUDA_VISIBLE_DEVICES="2,0") == "0000:85:00.0,0000:07:00.0"
    assert elsewhere.devices(shell, CUDA_VISIBLE_DEVICES="3") == ""
    assert elsewhere.devices(shell, CUDA_VISIBLE_DEVICES="GPU-3f2a") == ""
    assert elsewhere.devices(shell) == ""
    # Behind a device cgroup, programs count the GPUs that are left.
    (elsewhere.folder / "dev/nvidia1").unlink()
    assert elsewhere.devices(shell, CUDA_VISIBLE_DEVICES="0") == "0000:46:00.0"
    assert len(elsewhere.node(shell).gpus) == 3


@pytest.mark.parametrize("shell", SHELLS)
def test_instances_of_mig(shell: str, elsewhere: Elsewhere) -> None:
    """In the folder of the GPU's minor number (MIG User Guide, "Device Nodes and Capabilities")."""
    for minor, bus in ((1, "0000:07:00.0"), (0, "0000:46:00.0")):
        elsewhere.nvidia(bus, minor, 0)
    elsewhere.write("proc/driver/nvidia/capabilities/mig/config")
    elsewhere.write("proc/driver/nvidia/capabilities/gpu7/mig/gi1/access")
    assert elsewhere.node(shell).gpu_modes == frozenset()
    for instance in ("gi1/access", "gi1/ci0/access", "gi2/access"):
        elsewhere.write(f"proc/driver/nvidia/capabilities/gpu1/mig/{instance}")
    assert elsewhere.node(shell).gpu_modes == {"MIG"}


@pytest.mark.parametrize("shell", SHELLS)
def test_partitions_of_amds_gpus(shell: str, elsewhere: Elsewhere) -> None:
    """Only the first of a GPU is a PCI device; the others are a platform's (k8s-device-plugin issue
    157 of ROCm)."""
    elsewhere.amd(0)
    elsewhere.amd(1, "0000:01:00.0")
    elsewhere.amd(2, "0000:02:00.0")
    device = elsewhere.folder / "sys/class/drm/renderD130/device"
    (device / "uevent").write_text("DRIVER=amdgpu_xcp_drv\nMODALIAS=platform:amdgpu_xcp\n")
    (device / "numa_node").unlink()
    assert elsewhere.node(shell).gpu_modes == frozenset()
    first = "sys/class/drm/renderD129/device"
    elsewhere.write(f"{first}/current_compute_partition", "CPX")
    assert elsewhere.node(shell).gpu_modes == {"CPX"}
    elsewhere.write(f"{first}/current_memory_partition", "NPS4")
    node = elsewhere.node(shell)
    assert node.gpu_modes == {"CPX/NPS4"}
    assert node.gpus == (("0000:01:00.0", 0), ("?", None))


@pytest.mark.parametrize("shell", SHELLS)
def test_amds_gpus(shell: str, elsewhere: Elsewhere) -> None:
    """In the order of KFD's nodes, which is no alphabetic one."""
    for number in range(4):
        elsewhere.amd(number)
    buses = [f"0000:{bus}:00.0" for bus in ("c1", "c6", "c9", "ce", "d1", "d6", "d9", "de")]
    near = (3, 3, 1, 1, 0, 0, 2, 2)
    for number, (bus, numa) in enumerate(zip(buses, near, strict=True), 4):
        elsewhere.amd(number, bus, numa)
    assert elsewhere.node(shell).gpus == tuple(zip(buses, near, strict=True))
    assert elsewhere.devices(shell, ROCR_VISIBLE_DEVICES="6,7") == "0000:d9:00.0,0000:de:00.0"
    # The kernel lets nothing be read of what a device cgroup hides.
    for number, bus in enumerate(buses[:6], 4):
        elsewhere.amd(number, bus, opens=False)
        (elsewhere.folder / f"dev/dri/renderD{128 + number}").unlink()
    assert elsewhere.devices(shell, ROCR_VISIBLE_DEVICES="0") == "0000:d9:00.0"
    assert elsewhere.node(shell).gpus[5:] == (("?", None), (buses[6], 2), (buses[7], 2))
    assert not compare_node(NodeDescription({}, [], {}), "a", elsewhere.node(shell), gpus=False)
