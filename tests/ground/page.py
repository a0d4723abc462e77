"""The page of the proving ground, rendered from what :mod:`ground.faults` measured."""

from __future__ import annotations

import json
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


def render(measured: dict) -> str:
    """The page, from what was measured."""
    heads = ["fault", "command", "night", "flagged", "injected", "size", "false", "codes"]
    rows = [heads, ["---"] * len(heads), *map(_row, measured["faults"].values())]
    return TEMPLATE.read_text().format(
        **measured,
        healthy_nights=_nights(measured["healthy"]),
        shared_nights=_nights(measured["oversubscribed"]),
        rows="\n".join("| " + " | ".join(row) + " |" for row in rows),
    )


def write() -> None:
    """Renders the page anew."""
    PAGE.write_text(render(json.loads(MEASURED.read_text())))


if __name__ == "__main__":
    write()
