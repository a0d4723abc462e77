"""Formats names, numbers and times for pages, file names and CSV."""

from __future__ import annotations

import functools
import hashlib
import math
import re
import unicodedata

import markupsafe
import numpy as np

from plumbline.core.text import escape_formula
from plumbline.history.series import Key

#: At most so many values are in a small chart.
SPARK = 120

# Results are cached, since names and bounds repeat from row to row and from page to page.

#: Categories of characters that are invisible, or reverse the text around them.
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(text: str) -> str:
    """Return a text with a replacement character for each invisible one."""
    return text if text.isascii() and text.isprintable() else _cleaned(text)


@functools.lru_cache(1 << 12)
def _cleaned(text: str) -> str:
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _UNSEEN else "\ufffd"
        for char in text
    )


@functools.lru_cache(1 << 14)
def html(text: str) -> str:
    """Return a text as HTML, with a replacement character for each invisible one."""
    return str(markupsafe.escape(clean(text)))


@functools.lru_cache(1 << 14)
def slug(*names: str) -> str:
    """Return a readable file name or anchor that is unique to these names."""
    plain = re.sub(r"[^a-z0-9]+", "-", " ".join(names).lower()).strip("-")[:60].rstrip("-")
    mark = hashlib.sha256("\0".join(names).encode(errors="replace")).hexdigest()[:8]
    return f"{plain}-{mark}" if plain else f"p-{mark}"


@functools.lru_cache(1 << 14)
def number(value: float | None) -> str:
    """Return a number with five significant digits, with an exponent only if necessary."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -4 <= magnitude < 9:
        return f"{value:.4e}"
    text = f"{value:,.{max(0, 4 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | None, signed: bool = True) -> str:
    """Return a share in per cent."""
    if share is None or not math.isfinite(share):
        return ""
    digits = 0 if abs(share) >= 0.995 else 1
    text = f"{abs(share) * 100:.{digits}f}"
    sign = ("+" if share > 0 else "\u2212") if signed and float(text) else ""
    return f"{sign}{text}\u202f%"


def confidence(share: float) -> str:
    """Return a confidence in per cent, at most as > 99 %."""
    return ">\u00a099\u202f%" if share > 0.99 else percent(share, signed=False)


def size(count: int | None) -> str:
    """Return a message size in B, KiB, MiB or GiB."""
    if count is None or count < 0:
        return ""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} B"


def day(time: np.datetime64) -> str:
    """Return the date."""
    return str(time.astype("datetime64[D]"))


def night(session: str) -> str:
    """Return the date of a session's name; the name itself if it has none."""
    digits = session[:8]
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}" if digits.isdigit() else session


def minute(time: np.datetime64) -> str:
    """Return date and time, UTC."""
    return str(time.astype("datetime64[m]")).replace("T", " ")


@functools.lru_cache(1 << 14)
def check(name: str) -> str:
    """Return a check's name without per cent signs and without its placement."""
    return re.sub(r" %placement=\S+", "", name).replace(" %", " ")


def figure(metric: str, count: int | None, location: str) -> str:
    """Return the name of a figure of merit."""
    return " · ".join(filter(None, (metric, size(count), location)))


def where(key: Key) -> str:
    """Return partition and environment."""
    return f"{key.partition} + {key.environment}"


def cell(content: object) -> str:
    """Return a CSV cell that no spreadsheet takes for a formula."""
    if isinstance(content, float | np.floating):
        return repr(float(content)) if math.isfinite(content) else ""
    return name_cell(str(content))


@functools.lru_cache(1 << 14)
def name_cell(content: str) -> str:
    """Return a text as a CSV cell."""
    return escape_formula(clean(content))


def number_cells(values: np.ndarray) -> list[float | None]:
    """Return numbers as CSV cells, empty if not finite."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def spark(values: np.ndarray) -> tuple[str, float, float]:
    """Return a small line chart of the newest values: an SVG path, and where the last one is."""
    width, height, pad = 132, 28, 3
    shown = values[-SPARK:].tolist()
    last, low, span = len(shown) - 1, min(shown), max(shown) - min(shown)
    places = []
    for index, value in enumerate(shown):
        x = pad + (width - 2 * pad) * (index / last if last else 1.0)
        # A constant is a line in the middle.
        y = height - pad - (height - 2 * pad) * ((value - low) / span if span else 0.5)
        places.append((round(x, 1), round(y, 1)))
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in places), *places[-1]
