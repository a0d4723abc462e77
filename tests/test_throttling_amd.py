"""GPUs of AMD that were slowed: what amd-smi, rocm-smi and the driver show."""

from __future__ import annotations

import json

import pytest
from gpu_readings import OUTSIDE_GROUPS, SMI, codes, of, reported
from plumbline.check.throttling import NodeReadings
from plumbline.placement.readings import PcieLink, read_json


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
