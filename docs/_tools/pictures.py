"""The pictures of the docs that are drawn from the project itself, which ``make docs`` writes.

``architecture.svg`` has the layers of the package, from the contract of import-linter in
``pyproject.toml``, and ``value.svg`` the way of one value through them. Both are legible on light
and dark pages.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

from plumbline.core import paths

#: Layer -> what it does, in a few words.
LAYERS = {
    "cli": "the plumbline command",
    "operate": "nightly, sweep, init, lint, doctor",
    "output": "report, show, export",
    "analysis": "trend, compare, screen, baseline",
    "session": "plan, run, summary, recovery",
    "history": "index of all records; series",
    "check": "a test case: samples, verdict, record",
    "site": "systems, configuration, inventory",
    "software": "providers, Spack builds, mirrors",
    "reference": "tables, tolerances, waivers",
    "placement": "topology, layouts, binding, proof",
    "parse": "a program's text to figures",
    "core": "errors, text, files, units",
}

#: What the layers use, and where it is drawn: the layer beside it.
BESIDE = {
    "session": ("ReFrame", "runs the jobs"),
    "software": ("Spack", "builds the programs"),
    "history": ("records.jsonl", "indexed in DuckDB"),
    "reference": ("reference/*.csv", "papers and site"),
}

#: The steps of a value: what it is, and the layer that makes it.
WAY = [
    ("0.85 us", "a program's text", ""),
    ("Fom", "a figure of merit", "parse"),
    ("CaseResult", "all samples of a case", "check"),
    ("bounds", "give the verdict", "reference"),
    ("Record", "a line of JSON", "session"),
    ("series", "night by night", "history"),
    ("finding", "since when, where", "analysis"),
    ("page", "report, show, export", "output"),
]

_STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1b1f24; }
.name { font-weight: 600; } .what, .layer { fill: #57606a; font-size: 12px; }
.box { fill: #f6f8fa; stroke: #8c959f; } .outside { fill: #ddf4ff; stroke: #0969da; }
.arrow { stroke: #57606a; stroke-width: 1.5; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .what, .layer { fill: #9da7b3; }
  .box { fill: #21262d; stroke: #6e7681; } .outside { fill: #12304f; stroke: #58a6ff; }
  .page { fill: #0d1117; } .arrow { stroke: #9da7b3; }
}
"""


def layers() -> list[str]:
    """Return the layers of the package, top down, as import-linter enforces them."""
    text = (paths.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^layers = \[(.*?)\]", text, re.M | re.S)
    return re.findall(r'"(\w+)"', listed[1])


def architecture() -> str:
    """Return the picture of the layers."""
    parts = []
    for row, name in enumerate(layers()):
        y = 34 + 38 * row
        parts += [_box(20, y, 430, 32), _text(34, y + 21, name, "name layer-name"),
                  _text(140, y + 21, LAYERS[name], "what")]  # fmt: skip
        if name in BESIDE:
            title, what = BESIDE[name]
            parts += [_arrow(f"M450 {y + 16}H486"), _box(490, y, 270, 32, "outside")]
            parts += [_text(504, y + 21, title, "name"), _text(640, y + 21, what, "what")]
    heading = "Each layer imports only from layers below it"
    return _svg(780, 38 * len(LAYERS) + 44, [_text(20, 22, heading, "what"), *parts],
                "The layers of the package: " + ", ".join(layers()))  # fmt: skip


def value() -> str:
    """Return the picture of the way of a value."""
    parts = []
    for step, (name, what, layer) in enumerate(WAY):
        row, column = divmod(step, 4)
        x, y = 20 + 184 * column, 16 + 110 * row
        parts += [_box(x, y, 154, 70, "box" if layer else "outside"),
                  _text(x + 12, y + 22, name, "name"), _text(x + 12, y + 40, what, "what"),
                  _text(x + 12, y + 58, layer and f"by {layer}/", "layer")]  # fmt: skip
        if column < 3:
            parts.append(_arrow(f"M{x + 154} {y + 35}H{x + 182}"))
        elif step < len(WAY) - 1:
            parts.append(_arrow(f"M{x + 77} {y + 70}V{y + 90}H97V{y + 108}"))
    words = " to ".join(f"{name} ({what})" for name, what, _ in WAY)
    return _svg(748, 212, parts, f"The way of one value: from {words}")


def _svg(width: int, height: int, parts: list[str], title: str) -> str:
    arrow = ('<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
             'markerHeight="8" orient="auto"><path class="arrow" d="M1 1L7 4L1 7"/></marker>'
             "</defs>")  # fmt: skip
    page = f'<rect class="page" width="{width}" height="{height}" rx="6" fill="#ffffff"/>'
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">')  # fmt: skip
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", arrow,
                      page, *filter(None, parts), "</svg>", ""])  # fmt: skip


def _box(x: int, y: int, width: int, height: int, kind: str = "box") -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>' if text else ""


def _arrow(way: str) -> str:
    return f'<path class="arrow" d="{way}" marker-end="url(#end)"/>'


def rendered() -> dict[str, str]:
    """Return file name -> text of all pictures."""
    return {"architecture.svg": architecture(), "value.svg": value()}


if __name__ == "__main__":
    for name, text in rendered().items():
        (Path(sys.argv[1]) / "images" / name).write_text(text, encoding="utf-8")
