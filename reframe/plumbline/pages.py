"""The docs' page of each paper: its numbers as printed, the reference ids, the known misprints."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from plumbline import refs
from plumbline.reference import References
from plumbline.table import SITE, Row

_HEAD = "Rendered by `make docs` from `reference/`; do not edit."


def render(references: References, folder: Path) -> dict[str, str]:
    """File name -> text of each page, and of their index.

    :arg folder: the reference folder, for its list of known misprints.
    """
    known = refs.misprints(folder)
    derived = read_derived(folder)
    by_source: dict[str, list[Row]] = {}
    for row in references.rows:
        if row.source != SITE:
            by_source.setdefault(row.source, []).append(row)
    pages = {
        f"{source}.md": _page(references, source, rows, known, derived)
        for source, rows in sorted(by_source.items())
    }
    return {"README.md": _index(references, by_source), **pages}


def read_derived(folder: Path) -> list[dict]:
    """The sums, ratios and percentages that the papers print, as arithmetic over row ids."""
    with (folder / "known" / "derived.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _index(references: References, by_source: dict[str, list[Row]]) -> str:
    kinds = ("measured", "peak", "target", "derived")
    lines = ["# The papers", "", _HEAD, "", f"| source | paper | {' | '.join(kinds)} |",
             "| --- | --- |" + " ---: |" * len(kinds)]  # fmt: skip
    for source, rows in sorted(by_source.items()):
        counts = [str(sum(row.kind == kind for row in rows)) for kind in kinds]
        title = _cell(references.tables.sources[source].short)
        lines.append(f"| [{source}]({source}.md) | {title} | {' | '.join(counts)} |")
    return "\n".join([*lines, ""])


def _page(references: References, source: str, rows: list[Row], known, derived) -> str:
    paper = references.tables.sources[source]
    lines = [
        f"# {paper.title}",
        "",
        _HEAD,
        "",
        f"{paper.authors}. {paper.venue}, {paper.year}.".lstrip(". "),
    ]
    if paper.doi:
        lines.append(f"doi:{paper.doi}.")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_place(row.locator), []).append(row)
    for place, group in groups.items():
        lines += ["", f"## {place}", "", "| where | system | figure | printed | id |",
                  "| --- | --- | --- | ---: | --- |"]  # fmt: skip
        lines += [_line(references, row, place) for row in group]
    told = {}
    for row in rows:
        for fields in refs.misprints_of(row, known):
            told.setdefault(tuple(fields.values()), fields)
    if told:
        lines += ["", "## Known misprints and readings", "", "| id | printed | used | arithmetic |",
                  "| --- | --- | --- | --- |"]  # fmt: skip
        lines += ["| " + " | ".join(_cell(text) for text in fields) + " |" for fields in told]
    ids = {row.id for row in rows}
    broken = [fields for fields in derived if fields["id"] in ids and fields["holds"] == "no"]
    if broken:
        lines += ["", "## Printed sums, ratios and percentages that do not hold", "",
                  "| id | printed | arithmetic |", "| --- | ---: | --- |"]  # fmt: skip
        lines += [
            f"| `{fields['id']}` | {_cell(fields['printed'])} | `{_cell(fields['expression'])}` |"
            for fields in broken
        ]
    return "\n".join([*lines, ""])


def _place(locator: str) -> str:
    """The table, slide or section of a locator, without row and column."""
    return re.split(r",| \(", locator, maxsplit=1)[0].strip()


def _line(references: References, row: Row, place: str) -> str:
    cells = references.tables.printed[row.id]
    where = row.locator.removeprefix(place).lstrip(", ") or "—"
    about = [f"{row.benchmark} {row.metric}"]
    for name, text in (("placement", "{}"), ("message_size", "{} B"), ("nodes", "{} nodes"),
                       ("ppn", "{} a node"), ("toolchain", "{}"), ("conditions", "{}"),
                       ("kind", "{}"), ("statistic", "{}")):  # fmt: skip
        if cells.get(name) and (name, cells[name]) not in _USUAL:
            about.append(text.format(cells[name]))
    spread = f" ± {cells['spread']}" if cells["spread"] else ""
    printed = f"{cells['value']}{spread} {cells['unit']}".strip()
    used = f"{cells['value_used'] or cells['value']} {cells['unit_used'] or cells['unit']}"
    if cells["value_used"] or cells["unit_used"]:
        printed += f" (used: {used})"
    texts = [where, row.system, "; ".join(about), printed]
    return "| " + " | ".join(map(_cell, texts)) + f" | `{row.id}` |"


#: What most rows are, and so goes without saying.
_USUAL = {("kind", "measured"), ("statistic", "unstated")}


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return re.sub(r"([|<>*_`\\])", r"\\\1", " ".join(str(text).split()))
