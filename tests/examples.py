"""What a page shows of a program's output, compared with it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def prints(output: str, shown: str) -> bool:
    """Return whether an output has what a page shows of it, with `...` for omitted text. Widths of
    columns do not count, nor the marks of findings, which differ from night to night."""
    output, shown = (
        " ".join(re.sub(r"(?<!\S)-{2,}(?!\S)|(?<=[a-z0-9]-)[0-9a-f]{6}\b", "", text).split())
        for text in (output, shown)
    )
    parts = (re.escape(part.strip()) for part in shown.split("..."))
    return bool(re.search(".*?".join(parts), output))


def prints_alike(output: str, shown: str) -> bool:
    """Return the same, but for numbers and names of sessions, which differ from run to run."""
    differing = r"\d{8}T\d{6}Z-[0-9a-f]{6}\b|[-+]?\d+(\.\d+)?(e[-+]\d+)?"
    return prints(*(re.sub(differing, "#", text) for text in (output, shown)))


def shown(page: str, part: str) -> str:
    """Return the only output on a page that has this part, without the command above it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:text|console)\n(?:\$ [^\n]*\n)?(.*?)^```", text, re.M | re.S)
    (found,) = [block for block in blocks if part in block]
    return found


def headings(text: str) -> list[str]:
    """Return the headings of all tables that a page, or a part of one, shows as text."""
    return re.findall(r"^.*(?=\n-{4})", text, re.M)
