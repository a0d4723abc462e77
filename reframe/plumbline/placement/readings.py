"""What a node's GPUs and CPUs report of themselves around a run: clocks, throttling, temperature,
power cap, ECC errors, PCIe link, faults.

The task wrapper passes on what ``nvidia-smi``, ``amd-smi``, ``rocm-smi`` and the kernel print. A
value that a tool does not print (``[N/A]``) is unknown, and so is an output that cannot be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from plumbline.placement.proof import lines_by_word

#: Why a GPU runs below the clock that was asked for, though it has work: something is wrong with
#: its cooling or its supply. ``idle``, application clocks, sync boost and the software power cap
#: are none: NVIDIA's own default cap slows most GPUs under full load ("SW Power Scaling algorithm
#: is reducing the clocks below requested clocks because the GPU is consuming too much power").
THROTTLED = frozenset({
    "sw-thermal", "hw-thermal", "power-brake", "hw-slowdown",
    "thermal", "vr-hot", "prochot", "socket-thermal", "vr-thermal", "hbm-thermal",
})  # fmt: skip

#: Bits of ``clocks_event_reasons.active``: NvmlClocksEventReasons in the NVML API Reference.
_NVIDIA = {
    0x1: "idle", 0x2: "application-clocks", 0x4: "power-cap", 0x8: "hw-slowdown",
    0x10: "sync-boost", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "power-brake",
    0x100: "display-clocks",
}  # fmt: skip

#: Counters of nvidia-smi in microseconds, ``clocks_event_reasons_counters.*``.
_NVIDIA_COUNTERS = {
    "sw_thermal_slowdown": "sw-thermal",
    "hw_thermal_slowdown": "hw-thermal",
    "hw_power_brake_slowdown": "power-brake",
}

#: Faults of a GPU that needs a repair, and their columns. A pending row remapping is none (NVIDIA
#: GPU Memory Error Management, "Error Recovery and Response Flags").
_NVIDIA_FAULTS = {
    "row-remapping-failed": "remapped_rows.failure",
    "page-retirement-pending": "retired_pages.pending",
    "recovery": "gpu_recovery_action",
}

#: Bits of amdgpu's ``indep_throttle_status``: SMU_THROTTLER_*_BIT in the kernel's amdgpu_smu.h. The
#: lower ones are limits of power and current, the higher ones those of a platform.
_AMD = {
    **dict.fromkeys(range(32, 44), "thermal"),
    **dict.fromkeys((44, 45), "vr-hot"),
    **dict.fromkeys((46, 47), "prochot"),
}

#: Transfer rate in GT/s of each generation of PCIe.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


class PcieLink(NamedTuple):
    """A PCIe link: generation and number of lanes."""

    generation: int
    width: int

    def __str__(self) -> str:
        return f"gen {self.generation} x{self.width}"


@dataclass(frozen=True)
class GpuReading:
    """A GPU at one moment; what is unknown is ``None``.

    :ivar moment: ``before``, ``load`` or ``after`` a run.
    :ivar reasons: that limit its clock now; an empty set if there is none.
    :ivar slowed: counters of how long it was throttled, in microseconds (NVIDIA) or in the
        firmware's steps (AMD): reason -> count.
    :ivar active: whether it is in a state in which it works, also if it is idle.
    :ivar temperature: of its hottest sensor, in degrees Celsius. :ivar clock: in MHz;
        ``memory_clock`` likewise. :ivar link: the PCIe link as it is, ``max_link`` as it can be.
    :ivar corrected: ECC errors, ``uncorrected`` likewise. :ivar faults: why it needs a reset or a
        repair; empty if it needs none.
    :ivar settings: power cap, greatest clocks, ECC mode, firmware: what its peers have in common.
    """

    moment: str
    reasons: frozenset[str] | None = None
    slowed: Mapping[str, int] = field(default_factory=dict)
    active: bool = False
    temperature: float | None = None
    clock: float | None = None
    memory_clock: float | None = None
    link: PcieLink | None = None
    max_link: PcieLink | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    faults: frozenset[str] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CpuReading:
    """The CPUs of a node at one moment.

    :ivar cores: times that cores were throttled as they were too hot; ``packages`` likewise.
        ``None`` if the kernel does not count them.
    :ivar clock: of the task's first CPU, in MHz; ``None`` if unknown.
    """

    moment: str
    cores: int | None
    packages: int | None
    clock: float | None


def cpu_readings(stderr: str) -> dict[str, list[CpuReading]]:
    """Return what tasks reported of their hosts' CPUs: host -> readings, in order.

    A line that is garbled is skipped.
    """
    found: dict[str, list[CpuReading]] = {}
    for words in _lines(stderr, "plumbline-cpu", 6):
        _, host, moment, *numbers = words
        if all(number == "-" or number.isdecimal() for number in numbers):
            cores, packages, clock = (None if n == "-" else int(n) for n in numbers)
            now = None if clock is None else clock / 1000
            found.setdefault(host, []).append(CpuReading(moment, cores, packages, now))
    return found


def gpu_readings(
    stderr: str, static: dict[str, dict[str, Any]]
) -> dict[str, list[dict[str, GpuReading]]]:
    """Return what tasks reported of their hosts' GPUs: host -> readings, in order: bus id -> GPU.

    A host whose tool failed is there, too, without that reading.

    :arg static: what ``amd-smi static`` printed in earlier runs, by host and number of the GPU;
        what it printed in this one is added.
    """
    texts: dict[tuple[str, str, str], list[str]] = {}
    for _, host, moment, tool, text in _lines(stderr, "plumbline-gpu", 5):
        texts.setdefault((host, moment, tool), []).append(text)
    found: dict[str, dict[str, dict[str, GpuReading]]] = {}
    for (host, moment, tool), lines in texts.items():
        merged = found.setdefault(host, {}).setdefault(moment, {})
        if tool == "amd-smi-static":
            static[host] = {str(gpu.get("gpu")): gpu for gpu in amd_smi_entries("".join(lines))}
        for bus, gpu in _of_tool(tool, lines, moment.partition("-")[0], static.get(host, {})):
            # One that only the kernel shows, and its tool does not, was not read.
            if bus in merged or tool != "sysfs":
                merged[bus] = _completed(merged[bus], gpu) if bus in merged else gpu
    return {host: [gpus for gpus in at.values() if gpus] for host, at in found.items()}


def _of_tool(
    tool: str, lines: list[str], moment: str, static: Mapping[str, Any]
) -> Iterator[tuple[str, GpuReading]]:
    """Yield bus id and GPU of each that a tool printed; none of one that prints no readings."""
    if tool == "nvidia-smi":
        yield from _of_nvidia_smi(lines, moment)
    elif tool == "amd-smi":
        yield from _of_amd_smi(lines, moment, static)
    elif tool == "rocm-smi":
        yield from _of_rocm_smi(lines, moment)
    elif tool == "sysfs":
        yield from _of_amdgpu(lines, moment)


def _completed(gpu: GpuReading, other: GpuReading) -> GpuReading:
    """Return a reading with what only another tool printed of the same GPU at the same moment."""
    unknown = {
        name: value for name, value in vars(other).items() if getattr(gpu, name) in (None, {})
    }
    return replace(gpu, **unknown | {"settings": {**other.settings, **gpu.settings}})


def _lines(stderr: str, word: str, count: int) -> Iterator[list[str]]:
    """Yield the words of each report of one kind; the last one is the rest of its line."""
    for line in lines_by_word(stderr).get(word, ()):
        if len(words := line.split(" ", count - 1)) == count:
            yield words


def _bus(text: str) -> str:
    """Return a bus id as the kernel has it: nvidia-smi prints eight digits of the PCI domain."""
    return text.lower()[-12:]


def _number(value: object) -> float | None:
    """Return the number in a value, also in amd-smi's ``{"value": 5, "unit": "W"}`` and rocm-smi's
    ``(800Mhz)``; ``None`` if it has none."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    match = re.match(r"\(?(\d+(\.\d+)?)", value) if isinstance(value, str) else None
    return float(match[1]) if match else None


def _count(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _link(generation: float | None, width: float | None) -> PcieLink | None:
    return PcieLink(int(generation), int(width)) if generation and width else None


def _hottest(*values: object) -> float | None:
    return max((number for value in values if (number := _number(value)) is not None), default=None)


def _stated(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings whose value is known."""
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in settings.items()
        if value not in (None, "") and not str(value).startswith(("[", "N/A"))
    }


# -- NVIDIA --------------------------------------------------------------------------------------


def _of_nvidia_smi(lines: list[str], moment: str) -> Iterator[tuple[str, GpuReading]]:
    """Yield bus id and GPU of each row that ``nvidia-smi --query-gpu`` printed,
    ``--help-query-gpu`` has the columns."""
    columns: list[str] = []
    for line in lines:
        cells = line.split(", ")
        if cells[0] == "pci.bus_id":
            # "power.limit [W]"; the reasons have another name in older drivers.
            names = (cell.partition(" ")[0] for cell in cells)
            columns = [name.replace("clocks_throttle_", "clocks_event_") for name in names]
        elif len(cells) == len(columns):
            yield _bus(cells[0]), _nvidia(dict(zip(columns, cells, strict=True)), moment)


def _nvidia(cells: dict[str, str], moment: str) -> GpuReading:
    values = {name: _number(cell) for name, cell in cells.items()}
    mask = cells.get("clocks_event_reasons.active", "")
    bits = int(mask, 16) if re.fullmatch("0x[0-9a-fA-F]+", mask) else None
    state = re.fullmatch(r"P(\d+)", cells.get("pstate", ""))
    counters = {
        reason: values.get(f"clocks_event_reasons_counters.{name}")
        for name, reason in _NVIDIA_COUNTERS.items()
    }
    link, most = (
        _link(values.get(f"pcie.link.gen.{which}"), values.get(f"pcie.link.width.{which}"))
        for which in ("current", "max")
    )
    states = _stated({fault: cells.get(column) for fault, column in _NVIDIA_FAULTS.items()})
    faults = (
        f"{fault}-{state}".lower().replace(" ", "-").removesuffix("-yes")
        for fault, state in states.items()
        if state not in ("No", "None")
    )
    return GpuReading(
        moment,
        None if bits is None else frozenset(r for bit, r in _NVIDIA.items() if bits & bit),
        {reason: int(count) for reason, count in counters.items() if count is not None},
        # P0 is the maximum performance, P12 the minimum. Compute programs run in P0, or on some
        # boards in P2; in idle states the link is slower.
        active=state is not None and int(state[1]) <= 2,
        temperature=_hottest(cells.get("temperature.gpu"), cells.get("temperature.memory")),
        clock=values.get("clocks.current.sm"),
        memory_clock=values.get("clocks.current.memory"),
        link=link,
        max_link=most,
        corrected=_count(cells.get("ecc.errors.corrected.volatile.total")),
        uncorrected=_count(cells.get("ecc.errors.uncorrected.volatile.total")),
        faults=frozenset(faults) if states else None,
        settings=_stated({
            "power_limit": values.get("power.limit"),
            "default_power_limit": values.get("power.default_limit"),
            "application_clock": values.get("clocks.applications.graphics"),
            "application_memory_clock": values.get("clocks.applications.memory"),
            "compute_mode": cells.get("compute_mode"),
            "persistence": cells.get("persistence_mode"),
            "row_remapping_pending": cells.get("remapped_rows.pending"),
            "uncorrected_errors": values.get("ecc.errors.uncorrected.volatile.total"),
            "max_clock": values.get("clocks.max.sm"),
            "max_memory_clock": values.get("clocks.max.memory"),
            "max_link": most,
            "host_link": "NVLink-C2C" if cells.get("c2c.mode") == "Enabled" else None,
            "ecc": cells.get("ecc.mode.current"),
            "firmware": cells.get("vbios_version"),
        }),
    )  # fmt: skip


# -- AMD -----------------------------------------------------------------------------------------


def read_json(text: str) -> Any:
    """Return what a text in JSON has; ``None`` if it is not JSON.

    Of a user who is not in the groups video and render, amd-smi of ROCm 6.4 prints a warning before
    it (amdsmi_helpers.py, check_required_groups).
    """
    try:
        return json.loads(re.sub(r"^[^\[{]+", "", text))
    except (ValueError, RecursionError):
        return None


def amd_smi_entries(text: str) -> list[dict[str, Any]]:
    """Return amd-smi's entry of each GPU: releases since ROCm 7 have them in ``gpu_data``."""
    printed = read_json(text)
    entries = printed.get("gpu_data") if isinstance(printed, dict) else printed
    every = entries if isinstance(entries, list) else []
    return [entry for entry in every if isinstance(entry, dict)]


def part(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of amd-smi's output; empty if the GPU does not have it ("N/A")."""
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _of_amd_smi(
    lines: list[str], moment: str, static: Mapping[str, Any]
) -> Iterator[tuple[str, GpuReading]]:
    """Yield bus id and GPU of each that ``amd-smi metric`` printed (amdsmi_commands.py). The bus id
    is in ``amd-smi static`` alone."""
    for entry in amd_smi_entries("".join(lines)):
        fixed = static.get(str(entry.get("gpu")), {})
        bus, limit = part(fixed, "bus"), part(fixed, "limit")
        if not isinstance(bus.get("bdf"), str):
            continue
        clock, pcie, ecc = (part(entry, name) for name in ("clock", "pcie", "ecc"))
        compute, memory = (part(clock, name) for name in ("gfx_0", "mem_0"))
        throttle = part(entry, "throttle") or part(entry, "violation")
        speed, most = _number(pcie.get("speed")), _number(bus.get("max_pcie_speed"))
        max_link = _link(_GENERATIONS.get(most or 0), _number(bus.get("max_pcie_width")))
        yield _bus(bus["bdf"]), GpuReading(
            moment,
            _active(throttle),
            dict(_accumulated(throttle)),
            active=moment == "load",
            temperature=_hottest(*part(entry, "temperature").values()),
            clock=_number(compute.get("clk")),
            memory_clock=_number(memory.get("clk")),
            link=_link(_GENERATIONS.get(speed or 0), _number(pcie.get("width"))),
            max_link=max_link,
            corrected=_count(ecc.get("total_correctable_count")),
            uncorrected=_count(ecc.get("total_uncorrectable_count")),
            settings=_stated({
                "power_limit": _power_limit(limit),
                "uncorrected_errors": _number(ecc.get("total_uncorrectable_count")),
                "max_clock": _number(compute.get("max_clk")),
                "max_memory_clock": _number(memory.get("max_clk")),
                "max_link": max_link,
            }),
        )  # fmt: skip


def _power_limit(limit: Mapping[str, Any]) -> float | None:
    """Return the power cap in W. Since ROCm 7.2 there are two: ``ppt0``, of the filtered power,
    which is the one that ``amd-smi set --power-cap`` sets by default, and ``ppt1``, of its peaks
    (amdsmi's CHANGELOG)."""
    limit = part(limit, "ppt0") or limit
    # "socket_power_limit" since ROCm 7.2, and in some releases before.
    return _number(limit.get("socket_power", limit.get("socket_power_limit")))


def _reason(name: str, ending: str) -> str:
    """Return the reason in a name such as ``hbm_thermal_accumulated``; empty if it is none."""
    match = re.fullmatch(rf"(\w+?)(_violation)?_{ending}", name)
    reason = match[1].replace("_", "-") if match else ""
    return reason if reason in THROTTLED else ""


def _active(throttle: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the reasons that are active; ``None`` if the GPU reports none as active or not."""
    states = {
        reason: state
        for name, value in throttle.items()
        if (reason := _reason(name, "status")) and (state := _state(value)) is not None
    }
    return frozenset(filter(states.get, states)) if states else None


def _state(value: object) -> bool | None:
    """Return whether a status is active; ``None`` if it cannot be read: it must not look like one
    that is not active."""
    if isinstance(value, Mapping):
        value = value.get("value")
    # The wrapper removes blanks.
    word = str(value).replace(" ", "").upper()
    return {"ACTIVE": True, "TRUE": True, "NOTACTIVE": False, "FALSE": False}.get(word)


def _accumulated(throttle: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in throttle.items():
        if (reason := _reason(name, "accumulated")) and (count := _count(value)) is not None:
            yield reason, count


def _of_rocm_smi(lines: list[str], moment: str) -> Iterator[tuple[str, GpuReading]]:
    """Yield bus id and GPU of each that ``rocm-smi --json`` printed (rocm_smi.py). It prints
    neither ECC errors in this format nor what the link can be."""
    printed = read_json("".join(lines))
    for card in printed.values() if isinstance(printed, dict) else ():
        # The wrapper removes blanks. "PCIBus: 0000:C1:00.0".
        if not (isinstance(card, dict) and isinstance(card.get("PCIBus"), str)):
            continue
        # "0 (16.0GT/s x16)", which not all GPUs have; or gpu_metrics, with the speed in 0.1 GT/s.
        level = re.search(r"\(([\d.]+)GT/sx(\d+)\)", str(card.get("pcieclocklevel")))
        tenths = _number(card.get("pcie_link_speed(0.1GT/s)")) or 0
        lanes = card.get("pcie_link_width(Lanes)")
        speed, width = level.groups() if level else (tenths / 10, lanes)
        status = str(card.get("indep_throttle_status"))
        # All bits are set if the GPU does not report it.
        known = status.isdecimal() and int(status) < 2**64 - 1
        yield _bus(card["PCIBus"]), GpuReading(
            moment,
            frozenset(r for bit, r in _AMD.items() if int(status) >> bit & 1) if known else None,
            active=moment == "load",
            temperature=_hottest(*(v for k, v in card.items() if k.startswith("Temperature("))),
            clock=_number(card.get("sclkclockspeed:")),
            memory_clock=_number(card.get("mclkclockspeed:")),
            link=_link(_GENERATIONS.get(float(speed)), _number(width)),
            settings=_stated({
                "power_limit": _number(card.get("MaxGraphicsPackagePower(W)")),
                "firmware": card.get("VBIOSversion"),
            }),
        )  # fmt: skip


def _of_amdgpu(lines: list[str], moment: str) -> Iterator[tuple[str, GpuReading]]:
    """Yield bus id and GPU of each that the kernel shows (amdgpu_pm.c, amdgpu_ras.c)."""
    for line in lines:
        bus, *files = line.split(",")
        numbers: dict[str, float] = {}
        for file in files:
            # "ras/umc_err_count:ue: 0", "../max_link_speed:16.0 GT/s PCIe".
            name, _, text = re.sub(r"^\S*/", "", file).rpartition(":")
            number = _number(text.strip())
            # A width of 255 is unknown. A link can be what both of its ends can.
            if number is not None and (name, number) != ("max_link_width", 255):
                numbers[name] = min(number, numbers.get(name, number))
        link, max_link = (
            _link(
                _GENERATIONS.get(numbers.get(f"{end}_link_speed", 0)),
                numbers.get(f"{end}_link_width"),
            )
            for end in ("current", "max")
        )
        bad, default = numbers.get("gpu_vram_bad_pages"), numbers.get("power1_cap_default", 0) / 1e6
        level = re.search(r"performance_level:(\w+)", line)
        yield bus, GpuReading(
            moment,
            active=moment == "load",
            link=link,
            max_link=max_link,
            corrected=_count(numbers.get("umc_err_count:ce")),
            uncorrected=_count(numbers.get("umc_err_count:ue")),
            faults=None if bad is None else frozenset(["page-retirement-pending"] if bad else ()),
            settings=_stated({
                "default_power_limit": default or None,
                "max_link": max_link,
                "host_link": "Infinity Fabric" if ",host_link:xgmi," in line else None,
                "performance_level": level and level[1],
                "uncorrected_errors": numbers.get("umc_err_count:ue"),
            }),
        )  # fmt: skip
