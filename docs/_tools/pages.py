"""The generated pages of the docs, which ``make docs`` writes.

There is a page for each paper (its numbers as printed, the reference ids, the known misprints), and
one each for the tolerances with their reasons, the placements, the launchers, the Spack
environments, and the reason codes.
"""

from __future__ import annotations

import csv
import itertools
import re
import sys
import textwrap
from collections import Counter
from pathlib import Path

import jinja2
from plumbline.check import states
from plumbline.core import paths
from plumbline.core.codes import registered
from plumbline.core.formats import markdown_table
from plumbline.output import reference_rows
from plumbline.placement import binding, placement
from plumbline.placement.binding import LAUNCHERS
from plumbline.placement.binding.common import NO_PAIRS, OF_SRUN, REFUSED_BY_ALL
from plumbline.reference import lookup
from plumbline.reference.lookup import References
from plumbline.reference.row import SITE, Row
from plumbline.reference.tolerance import Exceptional, Tolerance
from plumbline.site import weak_assertions
from plumbline.software import environments

SHIPPED = paths.ROOT / "reference"

_HEAD = "Rendered by `make docs` from `reference/`; do not edit."


def write(docs: Path) -> None:
    """Write the rendered pages into the folder of the docs.

    :raises Fault: if the reference tables are faulty.
    """
    for name, text in rendered(lookup.loaded(SHIPPED), SHIPPED).items():
        page = docs / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def rendered(references: References, folder: Path) -> dict[str, str]:
    """Return name in the docs -> text of all rendered pages.

    :arg folder: the reference folder.
    """
    return {
        **{f"papers/{name}": text for name, text in papers(references, folder).items()},
        "tolerances.md": tolerances(references),
        "placements.md": placements(),
        "launchers.md": launchers(),
        "environments.md": concretized(),
        "codes.md": codes(folder),
        "troubleshooting.md": troubleshooting(folder),
    }


def codes(folder: Path) -> str:
    """Return the page of the reason codes, with a table for each part of the package that has some.

    :arg folder: the reference folder.
    """
    lines = [_CODES]
    known = {**registered(), **states.reasons(folder)}
    for part, codes in itertools.groupby(known, key=lambda code: code.partition(".")[0]):
        rows = [[f"`{c}`", _cell(known[c].cause), _cell(known[c].remedy)] for c in codes]
        lines += ["", f"## {part}", "", markdown_table(["code", "cause", "remedy"], rows)]
    return "\n".join(lines) + "\n"


_CODES = """# Reason codes

Rendered by `make docs` from the package and `reference/stderr.yaml`; do not edit.

Each refusal, skip, invalid result, error and warning has a stable code. Messages may change, codes
do not, so scripts and dashboards should use the code:

```
plumbline explain placement.too-few-cores
```

The code is in brackets at the end of a message, in the field `code` of a record and of
`--format json`, and in JUnit XML. Without a code, `plumbline explain` lists all of them."""


def troubleshooting(folder: Path) -> str:
    """Return the page of symptoms. What a code means is on the page of the codes alone.

    :arg folder: the reference folder.
    """
    known = {**registered(), **states.reasons(folder)}

    def code(name: str) -> str:
        return f"[`{name}`](codes.md#{name.partition('.')[0]})" if known[name] else ""

    rows = Counter(name.partition(".")[0] for name in known)
    parts = [f"| [`{part}`](codes.md#{part}) | {_ABOUT[part]} | {rows[part]} |" for part in rows]
    return _from_template("troubleshooting.md.j2", codes=known, code=code, parts=parts)


#: Part of the codes -> what those are about.
_ABOUT = {
    "input": "the command line, and files that it names",
    "files": "files and folders that are written",
    "system": "which system this is, its file and its inventory",
    "check": "the declaration of a check",
    "reference": "tables, registers and waivers",
    "session": "starting a session, and what a killed one left",
    "duet": "the two sides of a duet",
    "history": "sessions that are selected or read",
    "waiver": "waivers that no longer serve",
    "baseline": "why a figure or session is not in a baseline",
    "scheduler": "the scheduler and its nodes",
    "placement": "placements that a node does not have",
    "binding": "placements that a launcher cannot express",
    "build": "programs that are not there, or are others than expected",
    "spack": "Spack: environments, locks, mirrors",
    "scratch": "scratch folders",
    "output": "what a program printed",
    "proof": "tasks that ran elsewhere than requested",
    "topology": "a node that differs from its system file",
    "network": "the wrong network, or its errors",
    "device": "GPUs that were throttled, have a fault, or were not read",
    "cpu": "CPUs that were throttled, or have a fault",
    "job": "jobs that the scheduler ended",
    "case": "test cases that did not run to their end",
    "figure": "verdicts and warnings of figures",
    "stderr": "faults on standard error",
}


def tolerances(references: References) -> str:
    """Return the page of the tolerances, with the rule and reason of each class and exception."""
    rules = references.tables.rules
    classes = [
        f"| `{name}` | {rule.better} | {_allowed(rule)} | {_cell(rule.reason)} |"
        for name, rule in rules.classes.items()
    ]
    exceptions = [
        f"| {', '.join(f'`{name}`' for name in found.rows)} | {_floor(references, found)} | "
        f"{_cell(found.reason)} |"
        for found in rules.exceptions
    ]
    decide = [r.id for r in references.rows if r.kind == "measured" and references.may_decide(r)]
    passing = weak_assertions.wide(references, {"": decide})
    wide = [f"| `{name}` | {loss:.0%} |" for name, loss in passing.items()]
    warning, baseline = rules.warning, rules.baseline
    return _TOLERANCES.format(
        classes="\n".join(classes),
        exceptions="\n".join(exceptions),
        wide="\n".join(wide),
        loss=f"{rules.wide.loss:.0%}",
        wide_reason=_cell(rules.wide.reason),
        share=f"{warning.share:.0%}",
        distances=f"{rules.suspicious.distances:g}",
        times=f"{rules.suspicious.times:g}",
        too_good=_cell(rules.suspicious.reason),
        reason=_cell(warning.reason),
        decides=", ".join(rules.decides),
        sessions=baseline.sessions,
        noise=f"{baseline.noise:.0%}",
        alarms=f"{baseline.alarms:.1%}",
    )


_TOLERANCES = """# Tolerances

Rendered by `make docs` from `reference/tolerance.yaml`; do not edit.

How far a figure of merit may lie from its reference, by the class that `reference/foms.yaml` gives
it. [Verdicts](verdicts.md#bounds) explains how bounds are derived from this, and
[false alarms and power](power.md) shows what the rules achieve. For example, for one row,

```console
$ plumbline refs --why cielo-stream-triad-numa-2-2
...
asserts:   [11.7705, open] GB/s
           class bandwidth: higher is better; the larger of 5% and 3 spreads, at least 0.01 GB/s
...
```

| class | better | allowed | reason |
| --- | --- | --- | --- |
{classes}

## Exceptions for single rows

For these rows the class's share is replaced by the noise that the paper prints for them, or by what
distinguishes them from the value of the neighbouring case; or another statistic than the class's
decides.
[What is asserted](coverage.md#weak-assertions) lists the rows whose bounds cannot distinguish the
two.

| rows | allowed | reason |
| --- | --- | --- |
{exceptions}

## Wide bounds

A loss of more than {loss} passes the bounds of these rows, since their printed spread is so large.
Of a distribution, the loss is that with the fewest samples; [false alarms and power](power.md) has
more. `plumbline lint --weak` lists those of one system.
{wide_reason}

| row | loss that passes |
| --- | ---: |
{wide}

## The warning band

Beyond {share} of the distance to its bound, a figure that passes is reported as near it.
{reason}

## Too good

A figure that is better than its reference by more than {distances} times the distance to its
bound, and at least {times} times as good, is `suspicious`: a
[warning state](verdicts.md#warning-states).
{too_good}

## Which row decides

If several rows match equally well, the first statistic of {decides} decides.

## Site baselines

A baseline needs at least {sessions} sessions, and a spread, widened for their small number, of at
most {noise}. Then at most {alarms} of a healthy system's sessions fail because of one figure.
"""


def _floor(references: References, found: Exceptional) -> str:
    if found.statistic:
        return f"as its class, of the {found.statistic}"
    if not found.variation:
        return f"{found.floor:.0%}"
    row = references.tables.rows[found.variation]
    return f"{row.value:g}{row.unit}, printed: `{row.id}`"


def _allowed(rule: Tolerance) -> str:
    if rule.better == "neither":
        return "not asserted"
    of = "printed spreads"
    if rule.distribution:
        of = f"standard errors of the mean of {rule.samples} samples or more"
    return f"{rule.floor:.0%}, or {rule.spreads:g} {of}"


def placements() -> str:
    """Return the page of the placements."""
    described = placement.PLACEMENTS | {
        "numa-M-N": "one task on the cores of NUMA domain M, with the memory of domain N"
    }
    lines = [f"| `{name}` | {_cell(meaning)} |" for name, meaning in described.items()]
    return _PLACEMENTS.format(lines="\n".join(lines))


_PLACEMENTS = """# Placements

Rendered by `make docs` from `reframe/plumbline/placement/placement.py`; do not edit.

Where the tasks of a benchmark run. For example, in `imb_p2p` with the placement `on-socket`, two
tasks run on two cores of one socket.

A partition lists its placements under `extras.placements` of [its file](systems.md), a check
declares those that it runs in, and [each launcher](launchers.md) gets the exact cores, memory and
GPUs.

| placement | means |
| --- | --- |
{lines}
"""


def launchers() -> str:
    """Return the page of the launchers: what selects each, its options, and what it refuses."""
    of_srun = textwrap.fill(", ".join(f"`{name}`" for name in OF_SRUN), 120)
    return _from_template(
        "launchers.md.j2",
        selection=_selection,
        options=_options,
        refusals=_refusals,
        of_srun=of_srun,
    )


def _from_template(name: str, **values: object) -> str:
    template = Path(__file__).with_name(name).read_text(encoding="utf-8")
    markdown = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701 no HTML
    return markdown.from_string(template).render(values) + "\n"


def _selection() -> str:
    rows = []
    for name, launcher in LAUNCHERS.items():
        anchor = re.sub(r"[^\w -]", "", launcher.section.lower()).replace(" ", "-")
        command = f"`{launcher.command}`" if launcher.command else "none"
        rows.append([f"`{name}`", f"`{launcher.key}`", command, f"[{launcher.section}](#{anchor})"])
    return markdown_table(["value", "of", "command", "options"], rows)


def _options(section: str) -> str:
    """Return the options of a section, from the table of the bindings."""
    path = Path(binding.__file__).with_name("options.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["section"] == section]
    cells = [[f"`{row['option']}`", row["purpose"], row["source"]] for row in rows]
    return markdown_table(["option", "for", "from"], cells)


def _refusals() -> str:
    """Return each refusal with its launchers."""
    refusing = {refusal: [*LAUNCHERS] for refusal in REFUSED_BY_ALL}
    for name, launcher in LAUNCHERS.items():
        for refusal in (*launcher.refusals, *(() if launcher.bind_pair else (NO_PAIRS,))):
            refusing.setdefault(refusal, []).append(name)
    rows = []
    for refusal, names in refusing.items():
        listed = ", ".join(f"`{name}`" for name in names)
        listed = "all" if len(names) == len(LAUNCHERS) else listed
        rows.append([refusal.message, listed, refusal.when])
    return markdown_table(["message", "launchers", "when"], rows)


def concretized() -> str:
    """Return the page of the shipped locks.

    :raises Fault: if one cannot be read.
    """
    rows = []
    for path in sorted((paths.ROOT / "spack-env").glob(f"*/*/{environments.LOCK}")):
        lock = environments.read_lock(path)
        external = sum(bool(node.prefix) for node in lock.nodes.values())
        counts = len(lock.roots), len(lock.nodes), external
        rows.append([path.parent.parent.name, path.parent.name, *counts])
    numbers = ["root specs", "packages", "external packages"]
    pins = environments.pins()
    return _CONCRETIZED.format(
        spack=pins["spack"]["tag"],
        packages=pins["packages"]["tag"],
        table=markdown_table(["system", "toolchain", *numbers], rows, numbers),
    )


_CONCRETIZED = """# Concretized Spack environments

Rendered by `make docs` from the locks in `spack-env/`; do not edit.

The exact versions of all packages of each environment were computed by `make lock` and stored in
its `spack.lock`; nothing was built. It used Spack {spack}, and its packages {packages}. External
packages (such as the system's MPI) were assumed to be installed, and each environment was
concretized for the CPU of its own system.

{table}
"""


def papers(references: References, folder: Path) -> dict[str, str]:
    """Return file name -> text of each paper's page, and of their index.

    :arg folder: the reference folder, for its list of known misprints.
    """
    known = reference_rows.misprints(folder)
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
    """Return the sums, ratios and percentages that the papers print, as arithmetic over row ids."""
    with (folder / "known" / "derived.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


_PAPERS = """\
The papers whose printed numbers are references, and the pages of vendors and facilities with the
peaks of links that no paper prints, with how many rows of each kind they have. Each page here has
the numbers as printed, and the id of each row. For example, `plumbline refs 786.43` finds
the rows that print this number ([references](../references.md))."""


def _index(references: References, by_source: dict[str, list[Row]]) -> str:
    kinds = ("measured", "peak", "target", "derived")
    cells = []
    for source, rows in sorted(by_source.items()):
        counts = [sum(row.kind == kind for row in rows) for kind in kinds]
        title = _cell(references.tables.sources[source].short)
        cells.append([f"[{source}]({source}.md)", title, *counts])
    table = markdown_table(["source", "paper", *kinds], cells, kinds)
    return "\n".join(["# The papers", "", _HEAD, "", _PAPERS, "", table, ""])


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
    if paper.document.startswith("https:"):
        lines.append(f"<{paper.document}>.")
    lines += ["", "The numbers of this source as printed, with the id of each row. For example,",
              f"`plumbline refs --why {rows[0].id}` explains the first one."]  # fmt: skip
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_place(row.locator), []).append(row)
    for place, group in groups.items():
        rows_of = (_line(references, row, place) for row in group)
        table = markdown_table(["where", "system", "figure", "printed", "id"], rows_of, ["printed"])
        lines += ["", f"## {place}", "", table]
    misprints = {}
    for row in rows:
        for fields in reference_rows.misprints_of(row, known):
            misprints.setdefault(tuple(fields.values()), fields)
    if misprints:
        heads = ["id", "printed", "used", "arithmetic"]
        table = markdown_table(heads, ([*map(_cell, fields)] for fields in misprints))
        lines += ["", "## Known misprints and readings", "", table]
    ids = {row.id for row in rows}
    broken = [fields for fields in derived if fields["id"] in ids and fields["holds"] == "no"]
    if broken:
        cells = (
            [f"`{f['id']}`", _cell(f["printed"]), f"`{_cell(f['expression'])}`"] for f in broken
        )
        table = markdown_table(["id", "printed", "arithmetic"], cells, ["printed"])
        lines += ["", "## Printed sums, ratios and percentages that do not hold", "", table]
    return "\n".join([*lines, ""])


def _place(locator: str) -> str:
    """Return the table, slide or section of a locator, without row and column."""
    return re.split(r",| \(", locator, maxsplit=1)[0].strip()


def _line(references: References, row: Row, place: str) -> list[str]:
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
    return [*map(_cell, texts), f"`{row.id}`"]


#: What most rows are, and so goes without saying.
_USUAL = {("kind", "measured"), ("statistic", "unstated")}


def _cell(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return re.sub(r"([|<>*_`\\])", r"\\\1", " ".join(str(text).split()))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
