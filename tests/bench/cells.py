"""The cells of the bench of detection: name of a cell -> the series that it measures."""

from __future__ import annotations

from collections.abc import Sequence

from nights import Plan

PLAIN = Plan(nights=180)
YEAR = Plan(nights=365, earliest=100, latest=300)

NOISES = [(kind, level) for kind in ("gaussian", "lognormal", "outlier") for level in (1, 2, 3)]
AUTOCORRELATED = {
    "AR 0.90, 2 %": PLAIN.but(slow=0.02, memory=0.90),
    "AR 0.95, 2 %": PLAIN.but(slow=0.02, memory=0.95),
    "AR 0.95, 1 %": PLAIN.but(slow=0.01, memory=0.95),
    "AR 0.95, 1 %, noise 2 %": PLAIN.but(slow=0.01, memory=0.95, level=0.02),
    "sine of 60 nights, 2 %": PLAIN.but(slow=0.02, memory=60, shape="sine"),
}


def alarm_cells() -> dict[str, Plan]:
    cells = {
        f"{kind} {level} %": PLAIN.but(noise=kind, level=level / 100, gaps=0.03)
        for kind, level in NOISES
    }
    cells["heavy tails 2 %"] = PLAIN.but(noise="heavy", level=0.02, gaps=0.03)
    cells["outlier 2 %, retest"] = PLAIN.but(noise="outlier", level=0.02, retest=True)
    cells |= AUTOCORRELATED
    for level, digits in ((0.5, 4), (0.1, 4), (0.5, 3), (0.1, 3)):
        cells[f"gaussian {level} %, {digits} digits"] = PLAIN.but(level=level / 100, digits=digits)
    return cells


def in_turn(sizes: Sequence[float], apart: tuple[int, int], level: int) -> Plan:
    """Changes of so many per cent, with so many nights between them, from night 40 to 80 on."""
    spans = [(40, 80), *[apart] * (len(sizes) - 1)]
    steps = tuple((*span, size / 100) for span, size in zip(spans, sizes, strict=True))
    return PLAIN.but(level=level / 100, steps=steps)


#: Upgrades, in per cent.
FOUR = 3, 4, 5, 3
ONCE = ((10, 20),)


def several_cells() -> dict[str, list[Plan]]:
    """Rows of series of several changes, of which the last is a loss: a plan for each distance."""
    seconds = [(n, n) for n in (3, 5, 8, 15, 25)]
    upgrades = [(n, n) for n in (10, 20, 40)]
    rows: list[tuple[Sequence[float], Sequence[tuple[int, int]]]] = [
        *(((-first, -second), seconds) for first in (4, 5, 10) for second in (5, 10, 15)),
        *(((first, -5), upgrades) for first in (5, 10)),
        *(((-size, 100 * size / (100 - size), -size), ONCE) for size in (5, 10)),
        ((-5, -5, -5), ONCE), ((5, -4, -5), ONCE), ((-5,) * 5, ONCE), ((4, -5, 5, -4, -5), ONCE),
        ((*FOUR, -5), ONCE),
    ]  # fmt: skip
    cells = {}
    for sizes, spans in rows:
        changes = ", ".join(f"{size:+.0f}" for size in sizes)
        apart = " / ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans)
        for level in (1, 2):
            name = f"{changes} %, {apart} nights apart, noise {level} %"
            cells[name] = [in_turn(sizes, span, level) for span in spans]
    return cells


def upgrade_cells() -> dict[str, Plan]:
    return {
        f"{', '.join(f'{size:+.0f}' for size in sizes)} %, noise {level} %":
        in_turn(sizes, ONCE[0], level)
        for sizes in ((5,), (10,), FOUR) for level in (1, 2)
    }  # fmt: skip


def quiet_cells() -> dict[str, Plan]:
    young = Plan(nights=90, change="step", latest=70)
    return {
        f"{size} % loss, noise {level} %, {f'{digits} digits' if digits else 'all digits'}":
        young.but(size=-size / 100, level=level / 100, digits=digits)
        for size in (5, 10) for level in (0, 0.1, 0.3, 0.5) for digits in (0, 4, 3)
    }  # fmt: skip


def step_cells() -> dict[str, Plan]:
    cells = {}
    for size in (0.05, 0.02, 0.10, 0.01):
        for kind, level in NOISES:
            if kind == "lognormal" and size != 0.05:
                continue
            cells[f"{size:.0%} step, {kind} {level} %"] = PLAIN.but(
                noise=kind, level=level / 100, gaps=0.0 if size == 0.10 else 0.03,
                change="step", size=-size,
            )  # fmt: skip
    return cells


def aim_cells() -> dict[str, tuple[str, Plan]]:
    """What the aims are about: name of a cell -> its aim, and what differs from a plain plan."""
    cells = {}
    for kind, level in NOISES:
        if level < 3:
            fields = {"noise": kind, "level": level / 100, "gaps": 0.03}
            cells[f"false alarms, {kind} {level} %"] = "0.1", fields
    for name, plan in AUTOCORRELATED.items():
        fields = {key: getattr(plan, key) for key in ("slow", "memory", "shape", "level")}
        cells[f"false alarms, {name}"] = "0.5", fields
    for size, levels, aim in (
        (0.05, (1, 2), "- / 90 / 98"), (0.02, (1,), "- / - / 98"), (0.10, (1, 2), "95 / - / -"),
    ):  # fmt: skip
        for kind, level in NOISES:
            if level in levels and (kind != "lognormal" or size == 0.05):
                gaps = 0.0 if size == 0.10 else 0.03
                cells[f"{size:.0%} step, {kind} {level} %"] = aim, {
                    "noise": kind, "level": level / 100, "change": "step", "size": -size,
                    "gaps": gaps,
                }  # fmt: skip
    return cells
