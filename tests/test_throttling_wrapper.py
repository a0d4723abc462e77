"""When the wrapper of tasks reads GPUs, by which tools, and what it reports."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import STANDINS
from gpu_readings import H200, SMI, codes, of, reported, run, text_of
from plumbline.placement import binding
from plumbline.placement.readings import PcieLink
from test_node import SHELLS, Elsewhere

MOMENTS = ("before", "load-1", "after")

#: Ends when its GPU was read so often, which the stand-in counts before it prints.
WAITS = 'until [ "$(wc -c <"$STANDIN_SMI/$0.calls")" -ge "$1" ]; do sleep 0.05; done; exit 7'


class Node:
    """A node whose tools print captures."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.env = {"STANDIN_SMI": str(folder), "PATH": os.environ["PATH"]}

    def prints(self, tool: str, *texts: str) -> None:
        for n, text in enumerate(texts):
            (self.folder / f"{tool}.{n}").write_text(text)
        name = "amd-smi" if tool.startswith("amd-smi") else tool
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        if not (programs / name).exists():
            (programs / name).symlink_to(STANDINS / "smi" / "smi.py")
        self.env["PATH"] = f"{programs}:{os.environ['PATH']}"

    def prints_amd(self, metric: str | None = None) -> None:
        """What amd-smi prints once, and of each reading."""
        self.prints("amd-smi-static", (SMI / "amd_format_static.json").read_text())
        before = (SMI / "amd_format_metric_before.json").read_text()
        self.prints("amd-smi-metric", metric or before)

    def run(self, shell: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return run(shell, binding.WRAPPER, *words, **self.env | env)

    def calls(self, tool: str) -> int:
        file = self.folder / f"{tool}.calls"
        return len(file.read_text()) if file.exists() else 0


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def moments(stderr: str) -> list[str]:
    found = re.findall(r"^plumbline-gpu \S+ ([a-z]+)", stderr, re.M)
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_wrapper_reads_gpus_around_and_during_a_run(shell: str, node: Node) -> None:
    node.prints("nvidia-smi", *(text_of(f"nvidia_rtx2080_595_{state}.csv")
                                for state in ("idle", "load", "load", "idle")))  # fmt: skip
    words = ("PLUMBLINE_DEVICES=cuda:1", "sh", "-c", WAITS, "nvidia-smi", "3")
    done = node.run(shell, "0", *words)
    assert done.returncode == 7 and "Terminated" not in done.stderr
    assert moments(done.stderr) == ["before", "load", "after"]
    found = of(done.stderr)
    assert codes(found) == []
    assert found.devices("n1")["0000:0c:00.0"].link == PcieLink(3, 16)
    # A later run is read at its end alone.
    assert moments(node.run(shell, "1", "PLUMBLINE_DEVICES=cuda:1", "true").stderr) == ["after"]


def test_without_runs_that_warm_up_none_is_read_while_it_runs(node: Node) -> None:
    node.prints("nvidia-smi", text_of("nvidia_h200_590_idle.csv"))
    done = node.run("sh", "0", "PLUMBLINE_DEVICES=cuda:0", "sleep", "1.3")
    assert moments(done.stderr) == ["before", "after"]


def test_an_older_nvidia_smi_refuses_the_newer_names(node: Node) -> None:
    node.prints("nvidia-smi", text_of("nvidia_h200_590_idle.csv"))
    done = node.run("sh", "0", "PLUMBLINE_DEVICES=cuda:0", "true", STANDIN_OLD="1")
    assert done.returncode == 0 and "valid field" not in done.stderr
    ((first, _),) = of(done.stderr).gpus.values()
    assert first[H200].reasons == {"idle"} and first[H200].settings["compute_mode"] == "Default"
    assert "remapped_rows" not in done.stderr


@pytest.mark.parametrize("tool", ["amd-smi", "rocm-smi", "old rocm-smi"])
def test_the_wrapper_reads_amds_gpus(tool: str, node: Node) -> None:
    if tool == "amd-smi":
        node.prints_amd()
    else:
        node.prints("rocm-smi", (SMI / "rocm_mi100_602.json").read_text())
    env = {"STANDIN_OLD": "1"} if tool.startswith("old") else {}
    done = node.run("sh", "0", "PLUMBLINE_DEVICES=rocm:0", "true", **env)
    assert moments(done.stderr) == ["before", "after"]
    (readings,) = of(done.stderr).gpus.values()
    assert len(readings) == 2 and len(readings[1]) == (2 if tool == "amd-smi" else 4)
    # A launcher passes on lines of less than a page at once.
    assert max(map(len, done.stderr.splitlines())) < 4096


def test_amds_gpus_are_read_in_a_virtual_machine(node: Node) -> None:
    """There amd-smi does not print the limits, without which it is asked again."""
    node.prints_amd()
    done = node.run("sh", "0", "PLUMBLINE_DEVICES=rocm:0", "true", STANDIN_VIRTUAL="1")
    (readings,) = of(done.stderr).gpus.values()
    assert [len(gpus) for gpus in readings] == [2, 2]
    assert " failed " not in done.stderr


def before_mi300() -> str:
    """What amd-smi prints of GPUs whose throttlers it does not know."""
    gpus = json.loads((SMI / "amd_format_metric_before.json").read_text())
    for gpu in gpus:
        gpu["throttle"] = dict.fromkeys(gpu["throttle"], "N/A")
    return json.dumps(gpus, indent=4)


def gpu_metrics(*bits: int) -> str:
    """What ``rocm-smi --showbus --showmetrics`` prints of these throttlers of the two GPUs."""
    return json.dumps({
        f"card{n}": {"PCI Bus": f"0000:{bus}:00.0", "indep_throttle_status": str(mask)}
        for n, (bus, mask) in enumerate(zip(("05", "26"), bits, strict=True))
    })  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS)
def test_rocm_smi_is_asked_for_throttlers_that_amd_smi_does_not_know(
    shell: str, node: Node
) -> None:
    node.prints_amd(before_mi300())
    node.prints("rocm-smi", gpu_metrics(0, 0), gpu_metrics(1, 1 << 36))
    done = node.run(shell, "0", "PLUMBLINE_DEVICES=rocm:0", "sh", "-c", "exit 3")
    assert done.returncode == 3
    found = of(done.stderr)
    assert codes(found) == ["device.throttled"]
    # One reading of both tools: what amd-smi printed is kept.
    assert [len(gpus) for gpus in found.gpus["n1"]] == [2, 2]
    sound, hot = found.devices("n1").values()
    assert (sound.throttled, hot.throttled) == ({}, {"thermal": ""})
    assert hot.max_link == PcieLink(5, 16) and hot.temperature is not None
    assert found.facts("n1")["gpu.0000:26:00.0.power_limit"] == "750"


@pytest.mark.parametrize("shell", SHELLS)
def test_rocm_smi_is_not_asked_for_what_amd_smi_knows(shell: str, node: Node) -> None:
    node.prints_amd()
    node.prints("rocm-smi", gpu_metrics(1 << 36, 1 << 36))
    done = node.run(shell, "0", "PLUMBLINE_DEVICES=rocm:0", "true")
    assert node.calls("rocm-smi") == 0
    assert codes(of(done.stderr)) == []


@pytest.mark.parametrize("old", [{}, {"STANDIN_OLD": "1"}])
def test_without_gpu_metrics_amd_smi_is_enough(old: dict[str, str], node: Node) -> None:
    """As before ROCm 6.3, or without rocm-smi: the reading has no reasons, and nothing failed."""
    node.prints_amd(before_mi300())
    if old:
        node.prints("rocm-smi", gpu_metrics(1 << 36, 1 << 36))
    done = node.run("sh", "0", "PLUMBLINE_DEVICES=rocm:0", "true", **old)
    assert " failed " not in done.stderr and node.calls("rocm-smi") == 0
    found = of(done.stderr)
    assert codes(found) == [] and [*found.devices("n1")] == ["0000:05:00.0", "0000:26:00.0"]
    assert not any("throttled" in gpu.recorded() for gpu in found.devices("n1").values())


def amdgpu(machine: Elsewhere, **files: str) -> None:
    """The kernel's folders of a GPU: behind the switch of its own card (PCI vendor 0x1002), whose
    upstream port has the link to the host's port."""
    root = "sys/devices/pci0000:00/0000:00:01.1"
    card = f"{root}/0000:24:00.0"
    gpu = f"{card}/0000:25:00.0/0000:26:00.0"
    for port, vendor in ((root, "0x1022"), (card, "0x1002"), (f"{card}/0000:25:00.0", "0x1002")):
        machine.write(f"{port}/vendor", vendor)
    # Within the card, the link is always as good as it can be.
    for folder, now, most, width in ((root, "8.0 GT/s PCIe", "16.0 GT/s PCIe", "8"),
                                     (card, "8.0 GT/s PCIe", "32.0 GT/s PCIe", "8"),
                                     (gpu, "32.0 GT/s PCIe", "32.0 GT/s PCIe", "16")):  # fmt: skip
        for name, text in (("current_link_speed", now), ("max_link_speed", most),
                           ("current_link_width", width), ("max_link_width", "16")):  # fmt: skip
            machine.write(f"{folder}/{name}", text)
    for name, text in {
        "power_dpm_force_performance_level": "low",
        "hwmon/hwmon4/power1_cap_default": "560000000",
        "ras/umc_err_count": "ue: 3\nce: 7",
        "ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R\n",
        **files,
    }.items():
        machine.write(f"{gpu}/{name}", text)
    driver = machine.folder / "sys/bus/pci/drivers/amdgpu"
    driver.mkdir(parents=True, exist_ok=True)
    (driver / "0000:26:00.0").symlink_to(machine.folder / gpu)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    (tmp_path / "machine").mkdir()
    return Elsewhere(tmp_path / "machine")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_kernel_shows_what_rocm_smi_does_not_print(
    shell: str, node: Node, elsewhere: Elsewhere
) -> None:
    amdgpu(elsewhere)
    card = {"card0": {"PCI Bus": "0000:26:00.0", "Max Graphics Package Power (W)": "450"}}
    node.prints("rocm-smi", json.dumps(card))
    done = run(shell, elsewhere.script, "0", "PLUMBLINE_DEVICES=rocm:0", "true", **node.env)
    # Readings after a run show no link: it is slower when the GPU is not in use.
    stderr = done.stderr.replace(" after ", " load-1 ")
    found = of(stderr)
    assert codes(found) == ["device.narrow-link"]
    (device,) = found.devices("n1").values()
    assert (device.link, device.max_link) == (PcieLink(3, 8), PcieLink(4, 16))
    assert (device.corrected, device.uncorrected, device.faults) == (0, 0, [])
    assert found.facts("n1") == {
        # What a tool prints counts.
        "gpu.0000:26:00.0.power_limit": "450", "gpu.0000:26:00.0.default_power_limit": "560",
        "gpu.0000:26:00.0.performance_level": "low", "gpu.0000:26:00.0.max_link": "gen 4 x16",
        "gpu.0000:26:00.0.uncorrected_errors": "3",
    }  # fmt: skip
    assert of(done.stderr).devices("n1")["0000:26:00.0"].link is None


@pytest.mark.parametrize("links, fabric", [
    (((0, 11), (2, 2)), True), (((0, 2), (2, 11)), False),
])  # fmt: skip
@pytest.mark.parametrize("shell", SHELLS)
def test_a_pcie_link_beside_infinity_fabric_is_not_judged(
    shell: str, node: Node, elsewhere: Elsewhere, links: tuple[tuple[int, int], ...], fabric: bool
) -> None:
    """As of Frontier's MI250X and of MI300A: the kernel's KFD shows by which link the GPU hangs on
    its processor (kfd_fill_gpu_direct_io_link_to_cpu), and of an APU reads no PCIe link."""
    amdgpu(elsewhere)
    elsewhere.amd(0)
    elsewhere.amd(1, "0000:26:00.0", links=links)
    elsewhere.amd(2, "0000:05:00.0")
    node.prints("rocm-smi", json.dumps({"card0": {"PCI Bus": "0000:26:00.0"}}))
    done = run(shell, elsewhere.script, "0", "PLUMBLINE_DEVICES=rocm:0", "true", **node.env)
    found = of(done.stderr.replace(" after ", " load-1 "))
    recorded = found.devices("n1")["0000:26:00.0"].recorded()
    shown = found.facts("n1").get("gpu.0000:26:00.0.host_link")
    if fabric:
        assert (codes(found), shown) == ([], "Infinity Fabric")
        assert not {"link", "max_link"} & {*recorded}
    else:
        assert (codes(found), shown) == (["device.narrow-link"], None)
        assert (recorded["link"], recorded["max_link"]) == ("gen 3 x8", "gen 4 x16")


@pytest.mark.parametrize("text, faults", [
    ("0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P", ["page-retirement-pending"]),
    ("0x00000001 : 0x00001000 : F", ["page-retirement-pending"]), ("", []),
])  # fmt: skip
def test_bad_pages_of_amds_gpus(
    text: str, faults: list[str], node: Node, elsewhere: Elsewhere
) -> None:
    amdgpu(elsewhere, **{"ras/gpu_vram_bad_pages": text, "ras/umc_err_count": "Query now"})
    node.prints_amd()
    done = run("sh", elsewhere.script, "0", "PLUMBLINE_DEVICES=rocm:0", "true", **node.env)
    found = of(done.stderr)
    assert codes(found) == (["device.needs-repair"] if faults else [])
    device = found.devices("n1")["0000:26:00.0"]
    # amd-smi printed the errors.
    assert (device.faults, device.uncorrected) == (faults, 0)
    assert max(map(len, done.stderr.splitlines())) < 4096


def test_a_gpu_that_only_the_kernel_shows_was_not_read(node: Node, elsewhere: Elsewhere) -> None:
    """Its tool failed, so whether it was throttled is not known."""
    amdgpu(elsewhere)
    node.prints("amd-smi-metric")
    done = run("sh", elsewhere.script, "0", "PLUMBLINE_DEVICES=rocm:0", "true", **node.env)
    assert " sysfs 0000:26:00.0," in done.stderr
    found = of(done.stderr, gpus="0000:26:00.0")
    assert found.devices("n1") == {} and codes(found) == ["device.not-read"]


@pytest.mark.parametrize("width, link", [("16", PcieLink(4, 16)), ("255", None)])
def test_a_link_whose_width_is_unknown(width: str, link: PcieLink | None) -> None:
    """As the kernel prints of a port without such a capability (pcie_get_width_cap)."""
    card = reported('{"card0": {"PCI Bus": "0000:26:00.0"}}', "after", "rocm-smi")
    files = f"max_link_speed:16.0 GT/s PCIe,max_link_width:{width},current_link_speed:Unknown,"
    found = of(card + reported(f"0000:26:00.0,{files}", "after", "nvidia-smi")
               .replace("nvidia-smi", "sysfs"))  # fmt: skip
    device = found.devices("n1")["0000:26:00.0"]
    assert (device.link, device.max_link) == (None, link)


@pytest.mark.parametrize("words", [
    ("0", "PLUMBLINE_DEVICES=cuda:1"), ("0", "PLUMBLINE_DEVICES=rocm:1"),
])  # fmt: skip
def test_a_node_without_the_tools_runs_the_program(words: tuple[str, ...], node: Node) -> None:
    done = node.run("sh", *words, "sh", "-c", "echo ran; exit 3")
    assert (done.returncode, done.stdout, moments(done.stderr)) == (3, "ran\n", [])
    assert codes(of(done.stderr)) == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("tool", ["nvidia-smi", "amd-smi", "rocm-smi"])
def test_a_tool_that_fails_is_reported(tool: str, shell: str, node: Node) -> None:
    """As it does when the driver is not loaded."""
    node.prints(tool)
    vendor = "cuda" if tool == "nvidia-smi" else "rocm"
    words = (f"PLUMBLINE_DEVICES={vendor}:0", "sh", "-c", "echo ran; exit 3")
    done = node.run(shell, "0", *words)
    assert (done.returncode, done.stdout) == (3, "ran\n")
    failed = re.findall(r"^plumbline-gpu \S+ (\w+) failed (\S+) 9$", done.stderr, re.M)
    once = [("before", "amd-smi-static")] if tool == "amd-smi" else []
    assert failed == [*once, ("before", tool), ("after", tool)]
    assert codes(of(done.stderr)) == ["device.not-read"]


@pytest.mark.parametrize("read, gpus, missing", [
    (["before", "load-1", "after"], H200, None),
    (["load-1"], H200, None), (["after"], H200, None),
    # Before the first run it still answered.
    (["before"], H200, [H200]), ([], H200, [H200]),
    # It does not list the other one.
    (MOMENTS, f"{H200},0000:84:00.0", ["0000:84:00.0"]),
    # The node does not show which GPUs the tasks see.
    (["after"], "", None), (["after"], "?", None), ([], "", []), ([], "?", []),
])  # fmt: skip
def test_a_gpu_that_is_not_read_during_the_runs(
    read: Sequence[str], gpus: str, missing: list[str] | None
) -> None:
    text = text_of("nvidia_h200_590_load.csv")
    lines = (
        reported(text, moment) if moment in read else
        f"plumbline-gpu n1 {moment} failed nvidia-smi 124\nplumbline-gpu n1 {moment} nvidia-smi \n"
        for moment in MOMENTS
    )  # fmt: skip
    found = of("".join(lines), gpus=gpus)
    assert codes(found) == ([] if missing is None else ["device.not-read"])
    named = [re.findall(r"0000:\w+:00\.0", notice.detail) for notice in found.notices()]
    assert named == ([] if missing is None else [missing])


def test_one_task_reads_a_node(node: Node) -> None:
    node.prints("nvidia-smi", text_of("nvidia_h200_590_idle.csv"))
    words = ("0", "PLUMBLINE_DEVICES=cuda:0", "CUDA_VISIBLE_DEVICES=0,1", "true")
    assert moments(node.run("sh", *words, PMI_RANK="1", MPI_LOCALRANKID="1").stderr) == []
    assert node.calls("nvidia-smi") == 0
    # And with the word for what only makes a folder, none.
    assert moments(node.run("sh", "-", *words[1:]).stderr) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_task_reads_the_gpu_that_is_hidden_from_others(
    shell: str, node: Node, tmp_path: Path
) -> None:
    (tmp_path / "machine").mkdir()
    machine = Elsewhere(tmp_path / "machine")
    for minor, bus in enumerate(("0000:83:00.0", "0000:84:00.0")):
        machine.write(f"proc/driver/nvidia/gpus/{bus}/information", f"Device Minor: \t {minor}\n")
    machine.write("dev/nvidia1")
    node.prints("nvidia-smi", text_of("nvidia_h200_590_idle.csv"))
    words = ("1", "PLUMBLINE_DEVICES=cuda:0", "CUDA_VISIBLE_DEVICES=0", "true")
    env = node.env | {"PMI_RANK": "1", "MPI_LOCALRANKID": "1"}
    done = run(shell, machine.script, *words, **env)
    assert moments(done.stderr) == ["after"]


def test_nothing_runs_on_after_the_wrapper(node: Node) -> None:
    """The readings while a program runs end also if the wrapper is killed."""
    node.prints("nvidia-smi", text_of("nvidia_h200_590_idle.csv"))
    task = subprocess.Popen(
        ["sh", binding.WRAPPER, "0", "PLUMBLINE_DEVICES=cuda:1", "cat"],
        env=node.env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        while node.calls("nvidia-smi") < 2:
            assert task.poll() is None
        task.kill()
        task.wait()
        task.stdin.close()
        # The pipe ends when the last process that can write to it does.
        assert task.stderr is not None
        task.stderr.read()
    finally:
        subprocess.run(["pkill", "-9", "-s", str(task.pid)], check=False)
