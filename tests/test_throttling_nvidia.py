"""GPUs of NVIDIA that were slowed, or have narrow links, errors or faults, by nvidia-smi."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from gpu_readings import H200, SMI, codes, of, reported, text_of
from plumbline.check import job_output, outcomes
from plumbline.check.samples import Run, RunEnd
from plumbline.check.throttling import NodeReadings
from plumbline.placement.placement import lay_out
from plumbline.placement.proof import read_tasks
from plumbline.placement.readings import PcieLink
from plumbline.placement.topology import Core, Topology

#: Reasons of clocks_event_reasons.active, as nvidia-smi prints them.
IDLE, POWER_CAP, SLOWDOWN, SW_THERMAL, HW_THERMAL, BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80

#: What a session on an H200 brought.
GPU = SMI.parent / "gpu"

#: Of this project's H200: not in use, beside BabelStream, at the power cap.
STATES_H200 = ("idle", "load", "power")


def nvidia(model: str = "h200_590", **moments: dict[str, str]) -> NodeReadings:
    """A run on a GPU of the captures; some of its readings have other cells."""
    states = {"before": "idle", "load": "load", "after": "idle"}
    return of("".join(
        reported(text_of(f"nvidia_{model}_{states[moment]}.csv", **moments.get(moment, {})), moment)
        for moment in states
    ))  # fmt: skip


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


@pytest.mark.parametrize("model, cells, narrow", [
    ("h200_590", {"pcie_link_width_current": "8"}, True),
    ("h200_590", {"pcie_link_gen_current": "4"}, True),
    ("h200_590", {"pcie_link_width_current": "[N/A]"}, False),
    ("h200_590", {"pcie_link_width_max": "[N/A]"}, False),
])  # fmt: skip
def test_a_narrow_link(model: str, cells: dict[str, str], narrow: bool) -> None:
    found = nvidia(model, before=cells, load=cells, after=cells)
    assert codes(found) == (["device.narrow-link"] if narrow else [])


@pytest.mark.parametrize("mode, judged", [("Enabled", False), ("Disabled", True), ("[N/A]", True)])
def test_a_pcie_link_beside_nvlink_c2c_is_not_judged(mode: str, judged: bool) -> None:
    """A GH200 reports a link of one lane, by which no copies to the host go."""
    text = text_of("nvidia_h200_590_load.csv", pcie_link_width_current="1")
    head, row = text.splitlines()
    found = of(reported(f"{head}, c2c.mode\n{row}, {mode}\n", "load"))
    (device,) = found.devices("n1").values()
    assert codes(found) == (["device.narrow-link"] if judged else [])
    assert ("link" in device.recorded()) is ("max_link" in device.recorded()) is judged
    assert ({"NVLink-C2C"} <= {*found.facts("n1").values()}) is not judged


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
