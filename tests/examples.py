"""What a page shows of a program's output, compared with it."""

from __future__ import annotations

import re


def prints(output: str, shown: str) -> bool:
    """Return whether an output has what a page shows of it, with `...` for omitted text. Widths of
    columns do not count, nor the marks of findings, which differ from night to night."""
    output, shown = (
        " ".join(re.sub(r"(?<!\S)-{2,}(?!\S)|(?<=[a-z0-9]-)[0-9a-f]{6}\b", "", text).split())
        for text in (output, shown)
    )
    parts = (re.escape(part.strip()) for part in shown.split("..."))
    return bool(re.search(".*?".join(parts), output))
