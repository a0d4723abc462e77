"""GPUs and CPUs that were slowed while they were measured: from what the vendors' tools print to
the warnings of a record."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import ROOT, STANDINS
from plumbline.check import job_output, outcomes
from plumbline.check.samples import Run, RunEnd
from plumbline.check.throttling import NodeReadings
from plumbline.placement import binding, proof
from plumbline.placement.placement import lay_out
from plumbline.placement.proof import TaskReport, read_tasks
from plumbline.placement.readings import PcieLink, read_json
from plumbline.placement.topology import Core, Topology
from test_node import SHELLS, Elsewhere

SMI = ROOT / "tests" / "captures" / "smi"

#: Reasons of clocks_event_reasons.active, as nvidia-smi prints them.
IDLE, POWER_CAP, SLOWDOWN, SW_THERMAL, HW_THERMAL, BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80

MOMENTS = ("before", "load-1", "after")

#: What a session on an H200 brought.
GPU = SMI.parent / "gpu"

#: Of this project's H200: not in use, beside BabelStream, at the power cap.
STATES_H200 = ("idle", "load", "power")

#: GPU of the captures of the H200.
H200 = "0000:83:00.0"


def text_of(name: str, **columns: str) -> str:
    """A capture of nvidia-smi, with other cells in some columns."""
    head, row = (line.split(", ") for line in (SMI / name).read_text().splitlines())
    names = [column.partition(" ")[0] for column in head]
    for column, cell in columns.items():
        (at,) = [n for n, known in enumerate(names) if known.replace(".", "_") == column]
        row[at] = cell
    # The wrapper asks for the bus id first.
    at = names.index("pci.bus_id")
    return ", ".join([*head[at:], *head[:at]]) + "\n" + ", ".join([*row[at:], *row[:at]]) + "\n"


def reported(text: str, moment: str, tool: str = "nvidia-smi", host: str = "n1") -> str:
    """What the wrapper reports of a tool's output."""
    if tool != "nvidia-smi":
        text = text.replace(" ", "").replace("\n", "")
    return "".join(f"plumbline-gpu {host} {moment} {tool} {line}\n" for line in text.splitlines())


def of(*runs: str, gpus: str = "") -> NodeReadings:
    found = NodeReadings()
    for stderr in runs:
        found.add(stderr, [TaskReport(0, "n1", "0", devices=gpus)])
    return found


def run(shell: str, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a shell, whose node is then called n1."""
    done = subprocess.run(
        [*shell.split(), *words], env={"PATH": os.environ["PATH"], **env},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    done.stderr = done.stderr.replace(os.uname().nodename, "n1")
    return done


def nvidia(model: str = "h200_590", **moments: dict[str, str]) -> NodeReadings:
    """A run on a GPU of the captures; some of its readings have other cells."""
    states = {"before": "idle", "load": "load", "after": "idle"}
    return of("".join(
        reported(text_of(f"nvidia_{model}_{states[moment]}.csv", **moments.get(moment, {})), moment)
        for moment in states
    ))  # fmt: skip


def codes(found: NodeReadings) -> list[str]:
    notices = found.notices()
    assert all(notice.state == "warnings" and "n1" in notice.detail for notice in notices)
    return [notice.code for notice in notices]


# -- what real GPUs print --------------------------------------------------------------------------


@pytest.mark.parametrize("model, link, clock, hot", [
    ("h200_590", PcieLink(5, 16), 1980, 52), ("h100_590", PcieLink(5, 16), 1980, 59),
    ("l40s_595", PcieLink(4, 16), 2520, 63), ("rtx2080_595", PcieLink(3, 16), 2055, 45),
])  # fmt: skip
def test_a_sound_gpu_gives_no_warning(model: str, link: PcieLink, clock: float, hot: float) -> None:
    found = nvidia(model)
    assert codes(found) == []
    (device,) = found.devices("n1").values()
    assert (device.link, device.max_link) == (link, link)
    assert (device.clock, device.temperature, device.throttled) == (clock, hot, {})
    errors = None if model == "rtx2080_595" else 0
    assert (device.corrected, device.uncorrected) == (errors, errors)


def test_settings_are_facts_of_the_host() -> None:
    assert nvidia().facts("n1") == {
        f"gpu.{H200}.power_limit": "700", f"gpu.{H200}.max_clock": "1980",
        f"gpu.{H200}.max_memory_clock": "3201", f"gpu.{H200}.max_link": "gen 5 x16",
        f"gpu.{H200}.ecc": "Enabled", f"gpu.{H200}.firmware": "96.00.A5.00.03",
        f"gpu.{H200}.default_power_limit": "700", f"gpu.{H200}.compute_mode": "Default",
        f"gpu.{H200}.persistence": "Enabled", f"gpu.{H200}.row_remapping_pending": "No",
        f"gpu.{H200}.uncorrected_errors": "0",
    }  # fmt: skip
    # What a GPU does not have is no fact.
    assert "gpu.0000:0c:00.0.ecc" not in nvidia("rtx2080_595").facts("n1")
    assert nvidia("rtx2080_595").facts("n1")["gpu.0000:0c:00.0.persistence"] == "Disabled"
    # Drivers before 590 print them.
    clocks = {"clocks_applications_graphics": "1095 MHz", "clocks_applications_memory": "1593 MHz"}
    locked = nvidia(before=clocks, load=clocks, after=clocks).facts("n1")
    assert locked[f"gpu.{H200}.application_clock"] == "1095"
    assert locked[f"gpu.{H200}.application_memory_clock"] == "1593"


def test_the_record_has_what_was_read() -> None:
    recorded = nvidia(load={"clocks_event_reasons_active": f"{HW_THERMAL:#018x}"}).devices("n1")
    assert recorded[H200].recorded() == {
        "throttled": ["hw-thermal"], "temperature": 52, "clock": 1980, "memory_clock": 3201,
        "link": "gen 5 x16", "max_link": "gen 5 x16", "corrected": 0, "uncorrected": 0,
        "faults": [],
    }  # fmt: skip


@pytest.mark.parametrize("moment, cells, faults", [
    ("after", {"remapped_rows_failure": "Yes"}, ["row-remapping-failed"]),
    ("before", {"retired_pages_pending": "Yes"}, ["page-retirement-pending"]),
    ("load", {"gpu_recovery_action": "Reset"}, ["recovery-reset"]),
    ("after", {"gpu_recovery_action": "Drain and Reset"}, ["recovery-drain-and-reset"]),
    # It changes neither results nor speed until the GPU is reset, so it is a fact alone.
    ("after", {"remapped_rows_pending": "Yes"}, []),
    # What is unknown, or cannot be read, is no fault.
    ("after", {"remapped_rows_failure": "[Unknown Error]", "gpu_recovery_action": "[N/A]"}, []),
    ("after", {"remapped_rows_failure": "[GPU requires reset]", "gpu_recovery_action": "N/A"}, []),
])  # fmt: skip
def test_a_gpu_that_needs_a_repair(moment: str, cells: dict[str, str], faults: list[str]) -> None:
    found = nvidia(**{moment: cells})
    assert codes(found) == (["device.needs-repair"] if faults else [])
    assert found.devices("n1")[H200].recorded()["faults"] == faults
    pending = found.facts("n1")[f"gpu.{H200}.row_remapping_pending"]
    assert pending == cells.get("remapped_rows_pending", "No")


def test_whether_it_needs_a_repair_may_be_unknown() -> None:
    """In MIG mode, or by an older driver: an empty list would say that it needs none."""
    columns = ("remapped_rows_failure", "retired_pages_pending", "gpu_recovery_action")
    cells = dict.fromkeys(columns, "[N/A]")
    found = nvidia(before=cells, load=cells, after=cells)
    assert codes(found) == []
    assert "faults" not in found.devices("n1")[H200].recorded()


@pytest.mark.parametrize("mode, names", [
    ("Exclusive_Process", [H200, "Exclusive_Process"]), ("Prohibited", [H200, "Prohibited"]),
    ("Default", []), ("[N/A]", []),
])  # fmt: skip
def test_a_failed_run_shows_a_gpu_that_is_not_for_all(mode: str, names: list[str]) -> None:
    """The second process on the GPU, or the first one, fails without another word about it."""
    (layout,) = lay_out("one-core", Topology((Core((0,), 0, 0),)))
    text = text_of("nvidia_h200_590_idle.csv", compute_mode=mode)
    with pytest.raises(outcomes.Invalid) as invalid:
        job_output.check_end(Run(0, layout, "0"), {"0": RunEnd(1, 0, 1)}, reported(text, "after"))
    assert invalid.value.code == "output.exit-code"
    assert re.findall(rf"{H200}|Exclusive_Process|Prohibited", str(invalid.value)) == names


# -- throttled -------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment, reasons, names", [
    ("load", SW_THERMAL, ["sw-thermal"]),
    ("load", HW_THERMAL | SLOWDOWN, ["hw-slowdown", "hw-thermal"]),
    ("load", BRAKE | POWER_CAP, ["power-brake"]),
    ("load", SLOWDOWN, ["hw-slowdown"]),
    ("after", HW_THERMAL, ["hw-thermal"]),
    # Normal under load, or set by the site.
    ("load", POWER_CAP, []), ("load", IDLE, []), ("load", 0x2 | 0x10 | 0x100, []),
    # Also reported when the clock changes, as at the end of a program.
    ("after", SLOWDOWN, []),
    # Of whatever ran before.
    ("before", HW_THERMAL | BRAKE, []),
])  # fmt: skip
def test_reasons_for_a_lower_clock(moment: str, reasons: int, names: list[str]) -> None:
    found = nvidia(**{moment: {"clocks_event_reasons_active": f"{reasons:#018x}"}})
    assert codes(found) == (["device.throttled"] if names else [])
    (device,) = found.devices("n1").values()
    assert sorted(device.throttled) == names


def test_a_gpu_at_its_power_cap_is_not_throttled() -> None:
    """An H200 of 700 W during products of matrices, as it was read."""
    idle, load, power = (text_of(f"nvidia_h200_580_{state}.csv") for state in STATES_H200)
    found = of(reported(idle, "before") + reported(power, "load-1") + reported(idle, "after"))
    (device,) = found.devices("n1").values()
    assert (codes(found), device.throttled, device.clock) == ([], {}, 1470.0)
    # Without load it is in the state P0 as well.
    assert device.link == device.max_link == PcieLink(5, 16)
    (device,) = of(reported(idle, "before") + reported(load, "after")).devices("n1").values()
    assert (device.throttled, device.clock, device.memory_clock) == ({}, 1980.0, 3201.0)


def test_the_readings_of_a_session_on_a_gpu() -> None:
    """Standard error of BabelStream's first two samples on an H200: a run to warm up, which was
    read when it had worked for a second, and another."""
    runs = [(GPU / f"h200_babelstream_sample-{run}.err").read_text() for run in (0, 1)]
    assert [re.findall(r"^plumbline-gpu vm (\S+) nvidia-smi 0", run, re.M) for run in runs] == [
        ["before", "load-1", "after"], ["after"],
    ]  # fmt: skip
    clocks = re.findall(r"^plumbline-gpu vm \S+ nvidia-smi 0.* W, (\d+) MHz", runs[0], re.M)
    assert clocks == ["1980"] * 3
    found = NodeReadings()
    for run in runs:
        found.add(run, read_tasks(run))
    (device,) = found.devices("vm").values()
    record = json.loads((GPU / "h200_records.jsonl").read_text().splitlines()[0])
    assert record["program"] == "cuda-stream"
    (recorded,) = record["devices"]["vm"].values()
    assert (device.clock, str(device.link)) == (recorded["clock"], recorded["link"])
    assert (found.notices(), recorded["throttled"]) == ([], [])


#: The columns of why a GPU is slow.
REASONS = "clocks_event_reasons_active"
COUNTERS = [f"clocks_event_reasons_counters_{reason}_slowdown"
            for reason in ("sw_thermal", "hw_thermal", "hw_power_brake")]  # fmt: skip


@pytest.mark.parametrize("moments, known", [
    ({}, True),
    ({"before": (REASONS, *COUNTERS), "load": (REASONS, *COUNTERS)}, True),
    (dict.fromkeys(("before", "load", "after"), (REASONS,)), True),
    ({"load": (REASONS, *COUNTERS), "after": (REASONS, *COUNTERS)}, False),
    (dict.fromkeys(("before", "load", "after"), (REASONS, *COUNTERS)), False),
])  # fmt: skip
def test_what_a_gpu_does_not_report_is_not_recorded(
    moments: dict[str, tuple[str, ...]], known: bool
) -> None:
    """An empty list says that it was not throttled."""
    found = nvidia(**{at: dict.fromkeys(columns, "[N/A]") for at, columns in moments.items()})
    fields = found.devices("n1")[H200].recorded()
    assert fields.get("throttled") == ([] if known else None)
    assert fields["clock"] == 1980 and codes(found) == []


def test_counters_show_what_happened_between_two_readings() -> None:
    counter = "clocks_event_reasons_counters_hw_thermal_slowdown"
    found = nvidia(**{m: {counter: f"{us} us"} for m, us in
                      (("before", 500), ("load", 500), ("after", 2000500))})  # fmt: skip
    assert codes(found) == ["device.throttled"]
    assert "hw-thermal (2 s)" in found.notices()[0].detail
    # The driver was loaded anew; the software's power cap is normal.
    assert codes(nvidia(before={counter: "9000 us"}, load={counter: "9000 us"})) == []


def test_an_older_driver_has_other_names(tmp_path: Path) -> None:
    text = text_of("nvidia_h200_590_load.csv", clocks_event_reasons_active=f"{BRAKE:#018x}")
    old = [line.split(", ") for line in text.splitlines()]
    at = next(n for n, name in enumerate(old[0]) if "counters" in name)
    rest = ["name", "compute_cap", "memory.total [MiB]"]
    cut = [line[:at] + line[-len(rest) :] for line in old]
    shown = "\n".join(", ".join(line) for line in cut).replace("_event_", "_throttle_")
    assert codes(of(reported(shown + "\n", "load-1"))) == ["device.throttled"]


def test_only_the_gpus_that_the_tasks_see_matter() -> None:
    hot = text_of("nvidia_h200_590_load.csv", clocks_event_reasons_active=f"{HW_THERMAL:#018x}")
    other = hot.replace("00000000:83", "00000000:84")
    both = reported(hot + other.splitlines()[1] + "\n", "load-1")
    assert codes(of(both)) == ["device.throttled"] * 2
    assert codes(of(both, gpus="0000:84:00.0")) == ["device.throttled"]
    # Neither is the one that a task sees.
    other = of(both, gpus="0000:0a:00.0")
    assert codes(other) == ["device.not-read"] and other.devices("n1") == {}


# -- links and ECC ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model, cells, narrow", [
    ("h200_590", {"pcie_link_width_current": "8"}, True),
    ("h200_590", {"pcie_link_gen_current": "4"}, True),
    ("h200_590", {"pcie_link_width_current": "[N/A]"}, False),
    ("h200_590", {"pcie_link_width_max": "[N/A]"}, False),
])  # fmt: skip
def test_a_narrow_link(model: str, cells: dict[str, str], narrow: bool) -> None:
    found = nvidia(model, before=cells, load=cells, after=cells)
    assert codes(found) == (["device.narrow-link"] if narrow else [])


def test_an_idle_link_is_no_evidence() -> None:
    idle = text_of("nvidia_rtx2080_595_idle.csv")
    found = of(reported(idle, "before") + reported(idle, "after"))
    assert codes(found) == [] and found.devices("n1")["0000:0c:00.0"].link is None
    # Data-centre boards stay in P0, so that a reading after the run is one.
    after = reported(text_of("nvidia_h200_590_idle.csv", pcie_link_width_current="4"), "after")
    assert codes(of(after)) == ["device.narrow-link"]


def test_uncorrected_errors_that_grew() -> None:
    column = "ecc_errors_uncorrected_volatile_total"
    # Errors of earlier are known to whoever looks after the node.
    assert codes(nvidia(before={column: "3"}, load={column: "3"}, after={column: "3"})) == []
    grown = nvidia(after={column: "2"})
    assert codes(grown) == ["device.uncorrected-errors"]
    corrected = nvidia(after={"ecc_errors_corrected_volatile_total": "7"})
    assert codes(corrected) == [] and corrected.devices("n1")[H200].corrected == 7


# -- AMD -------------------------------------------------------------------------------------------


#: What amd-smi of ROCm 6.4 prints before its JSON (amdsmi issue 130; amdsmi_helpers.py).
OUTSIDE_GROUPS = (
    "WARNING: User is missing the following required groups: render, video. Please add user to "
    "these groups.\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [(f"{OUTSIDE_GROUPS}[1]", [1]), ("[1]\nTraceback", None), ("[1, ", None), ("", None)],
    ids=["warning-before", "error-after", "truncated", "empty"],
)
def test_json_of_a_tool_is_read_whole_or_not_at_all(text: str, found: object) -> None:
    assert read_json(text) == found


def amd(*names: str, before: str = "") -> NodeReadings:
    moments = ("amd-smi-static", "before"), ("amd-smi", "before"), ("amd-smi", "load-1"), \
        ("amd-smi", "after")  # fmt: skip
    return of("".join(
        reported(before + (SMI / f"amd_format_{name}.json").read_text(), moment, tool)
        for name, (tool, moment) in zip(names, moments, strict=False)
    ))  # fmt: skip


def test_amd_smi() -> None:
    found = amd("static", "metric_before", "metric_load", "metric_after")
    # The first one's power cap is normal; the second one was hot, narrow, and had errors.
    assert codes(found) == [
        "device.throttled", "device.narrow-link", "device.uncorrected-errors",
    ]  # fmt: skip
    sound, ill = found.devices("n1").values()
    assert (sound.throttled, sound.link, sound.clock, sound.temperature) == (
        {}, PcieLink(5, 16), 2100, 78
    )  # fmt: skip
    assert (sorted(ill.throttled), ill.link, ill.uncorrected) == (
        ["hbm-thermal"],
        PcieLink(4, 8),
        2,
    )
    facts = found.facts("n1")
    assert facts["gpu.0000:26:00.0.power_limit"] == "750"
    assert facts["gpu.0000:05:00.0.max_link"] == "gen 5 x16"


@pytest.mark.parametrize("name, caps", [
    ("static", ["750", "750"]),
    # Two limits each, of which one is the cap; the second GPU has no other.
    ("static_72", ["1000", "850"]),
])  # fmt: skip
def test_the_power_cap_of_each_release_of_amd_smi(name: str, caps: list[str]) -> None:
    facts = amd(name, "metric_before").facts("n1")
    assert [facts[f"gpu.0000:{bus}:00.0.power_limit"] for bus in ("05", "26")] == caps


@pytest.mark.parametrize("status, names", [
    ("NOT ACTIVE", []), ("ACTIVE", ["vr-thermal"]), ("N/A", None),
    (False, []), (True, ["vr-thermal"]),
    # Some releases print objects (unit_format in amdsmi_helpers.py); what is unreadable is unknown.
    ({"value": "NOT ACTIVE", "unit": ""}, []), ({"value": "ACTIVE", "unit": ""}, ["vr-thermal"]),
    ({"value": {"xcp_0": ["N/A"]}, "unit": ""}, None), (["ACTIVE"], None), ("UNKNOWN", None),
])  # fmt: skip
def test_the_status_of_a_violation(status: object, names: list[str] | None) -> None:
    """As of GPUs without counters, and those that report neither."""
    (metric, *_) = json.loads((SMI / "amd_format_metric_before.json").read_text())
    metric["throttle"] = {"vr_thermal_accumulated": "N/A", "vr_thermal_violation_status": status}
    static = reported((SMI / "amd_format_static.json").read_text(), "before", "amd-smi-static")
    found = of(static + reported(json.dumps([metric]), "after", "amd-smi"))
    assert codes(found) == (["device.throttled"] if names else [])
    (device,) = found.devices("n1").values()
    assert device.recorded().get("throttled") == names


def test_amd_smi_of_a_user_who_is_not_in_its_groups() -> None:
    names = ("static", "metric_before", "metric_load", "metric_after")
    found, warned = amd(*names), amd(*names, before=OUTSIDE_GROUPS)
    assert found.devices("n1") == warned.devices("n1") != {}
    assert codes(found) == codes(warned)


def test_amd_smi_without_the_bus_ids_shows_nothing() -> None:
    text = reported((SMI / "amd_format_metric_load.json").read_text(), "load-1", "amd-smi")
    found = of(text)
    assert found.devices("n1") == {} and codes(found) == ["device.not-read"]


def test_rocm_smi() -> None:
    text = (SMI / "rocm_mi100_602.json").read_text()
    found = of(reported(text, "before", "rocm-smi") + reported(text, "load-1", "rocm-smi"))
    assert codes(found) == []
    assert [*found.devices("n1")] == [f"0000:{bus}3:00.0" for bus in "8ace"]
    device = found.devices("n1")["0000:a3:00.0"]
    assert (device.clock, device.memory_clock, device.temperature) == (300, 1200, 58)
    # ROCm 6.0.2 without --showmetrics.
    assert not any("throttled" in gpu.recorded() for gpu in found.devices("n1").values())
    assert (device.link, device.max_link) == (PcieLink(4, 16), None)
    assert found.facts("n1")["gpu.0000:e3:00.0.power_limit"] == "290"


@pytest.mark.parametrize("bits, names", [
    (1 << 36, ["thermal"]), (1 << 47 | 1 << 38, ["prochot", "thermal"]), (1 << 44, ["vr-hot"]),
    # Limits of power and current; and a GPU that does not report it.
    (1 | 1 << 17, []), (2**64 - 1, None),
])  # fmt: skip
def test_throttlers_of_amdgpu(bits: int, names: list[str] | None) -> None:
    cards = json.loads((SMI / "rocm_rx6700xt_612.json").read_text())
    cards["card0"] |= {"indep_throttle_status": str(bits), "pcie_link_speed (0.1 GT/s)": "160"}
    (device,) = of(reported(json.dumps(cards), "load-1", "rocm-smi")).devices("n1").values()
    assert device.recorded().get("throttled") == names


@pytest.mark.parametrize("line", [
    "plumbline-gpu", "plumbline-gpu n1 load-1 nvidia-smi", "plumbline-cpu n1 before 1",
    "plumbline-gpu n1 after nvidia-smi 00000000:83:00.0, P0", "plumbline-cpu n1 after x y z",
    "plumbline-gpu n1 after amd-smi {", "plumbline-gpu n1 after rocm-smi [1]",
    "plumbline-gpu n1 before amd-smi-static null", "plumbline-gpu n1 after amd-smi 7",
    "plumbline-gpu n1 after rocm-smi " + "[" * 5000,
])  # fmt: skip
def test_a_garbled_line_is_not_known(line: str) -> None:
    found = of(f"{line}\n")
    assert found.devices("n1") == {} and found.processors("n1") is None
    # A tool has answered, but not with GPUs.
    tool = line.startswith("plumbline-gpu") and line.count(" ") > 3
    assert codes(found) == (["device.not-read"] if tool else [])


# -- CPUs ------------------------------------------------------------------------------------------


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


# -- the wrapper -----------------------------------------------------------------------------------

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
