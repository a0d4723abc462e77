"""The page of the proving ground, rendered from what :mod:`ground.faults` and :mod:`ground.bench`
measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEMPLATE = Path(__file__).with_name("page.md")
MEASURED, PAGE = DOCS / "proving-ground.json", DOCS / "proving-ground.md"


def _per_cent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _row(found: dict) -> list[str]:
    return [
        found["fault"],
        f"`{found['command']}`",
        str(found["night"] or "-"),
        found["named"],
        _per_cent(found["injected"]),
        _per_cent(found["size"]),
        ", ".join(found["false"]) or "none",
        " ".join(f"`{code}`" for code in found["said"]),
    ]


def _nights(of: dict) -> str:
    rules = (
        f" ({of['strict']} of them under strict rules, with a baseline)" if of.get("strict") else ""
    )
    return f"{of['nights']} nights{rules}: {', '.join(of['false']) or 'nothing'}"


def _table(heads: list[str], rows: Iterable[list[str]]) -> str:
    """A table, or nothing without rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) if lines[2:] else ""


def _step(step: dict) -> list[str]:
    codes = step["codes"]
    return [
        f"`{step['command']}`",
        str(len(codes)),
        ", ".join(map(str, sorted({*codes}))),
        str(step["cases"]),
        "; ".join(f"{n} x {what}" for what, n in Counter(step["false"]).items()) or "none",
    ]


#: Heading -> GPCNeT's congestion factor.
FACTORS = {
    "latency": "random_ring_latency",
    "latency, 99 %": "random_ring_latency_p99",
    "bandwidth": "random_ring_sync_bandwidth",
    "allreduce": "multiple_allreduce_latency",
}


def _congested(found: dict) -> list[str]:
    factors = [found[f"{metric}_congestion_factor"] for metric in FACTORS.values()]
    return [f"{found['uplink']:g}", *(f"{factor:.1f}" for factor in factors)]


def render(measured: dict) -> str:
    """The page, from what was measured."""
    heads = ["fault", "command", "night", "flagged", "injected", "size", "false", "codes"]
    steps = ["command", "times", "exit codes", "cases passed", "failed"]
    return TEMPLATE.read_text().format(
        **measured,
        healthy_nights=_nights(measured["healthy"]),
        shared_nights=_nights(measured["oversubscribed"]),
        rows=_table(heads, map(_row, measured["faults"].values())),
        steps=_table(steps, map(_step, measured["operations"])) or "Not measured yet.",
        congested=_table(["uplinks, Mbit/s", *FACTORS], map(_congested, measured["congestion"])),
    )


def write() -> None:
    """Renders the page anew."""
    PAGE.write_text(render(json.loads(MEASURED.read_text())))


if __name__ == "__main__":
    write()
