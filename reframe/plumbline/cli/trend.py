"""``plumbline trend``: what changed in the history of each figure, and when."""

from __future__ import annotations

import datetime
import itertools
import sys
from dataclasses import asdict
from pathlib import Path

import click

from plumbline.cli.common import (
    MOMENT,
    long_selection_options,
    output_option,
    warn,
    warn_skipped,
    write,
)
from plumbline.core import formats
from plumbline.core.errors import WrongOption
from plumbline.core.text import fill, pluralize, shorten, table_lines

_HEADS = ("kind", "since", "found", "state", "size", "95 % interval")
#: A cause lists at most so many of its figures, and of its nodes.
_MAX_FIGURES, _MAX_NODES, _MAX_VARIABLES = 12, 8, 8
#: Records are read of so many causes, the most important ones.
_MAX_READ = 20


@click.command()
@long_selection_options
@click.option("--since", type=MOMENT, metavar="TIME",
              help="Only changes that began on this day or later: a date, or an age (30d, 2w). "
                   "All nights are judged nevertheless.")  # fmt: skip
@click.option("--new", type=MOMENT, is_flag=False, flag_value="7d", metavar="[TIME]",
              help="Only what is new: changes that were first reported, or confirmed, on this day "
                   "or later; without TIME, in the last seven days.")  # fmt: skip
@click.option("--active", is_flag=True,
              help="Only what is wrong now: changes for the worse that last.")  # fmt: skip
@click.option("--input", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="Read a CSV file of nights (series, night, value, better and optionally "
                   "retest) instead of the history.")  # fmt: skip
@click.option("--online", is_flag=True,
              help="Print start (first changed night) and size as they were known when the "
                   "change was first certain, not from the whole series. The changes are the "
                   "same.")  # fmt: skip
@click.option("--suspects", is_flag=True,
              help="Also report nights that stood out and came back unconfirmed.")  # fmt: skip
@click.option("--why", metavar="SERIES",
              help="Explain the series with this text in their names: their levels, the noise, "
                   "and the evidence for each change. Exits with 0.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]),
              help="[default: json with --input, else text]")  # fmt: skip
@output_option
def trend(select, source: Path | None, since, new, active: bool, file: Path | None, online: bool,
          suspects: bool, why: str | None, form: str | None, output: Path | None):  # fmt: skip
    """Find lasting changes, transients that came back, and slow drifts, series by series.

    Each night is judged from the nights up to it, from the 21st measured night on. A change's
    night is that of its first report. Changes of one check that began together have one cause;
    the most important cause is first.

    Exits with 1 if a regression or a drift to the worse, of those that are printed, is active and
    not waived, else with 2 if no series had enough nights, or a record could not be read.
    """
    from plumbline.analysis import causes
    from plumbline.analysis.trend import series_changes
    from plumbline.analysis.trend import why as explaining
    from plumbline.core import paths
    from plumbline.reference import waivers

    if why is not None and (since or new or active or suspects or online):
        raise WrongOption(
            "--why explains whole series: omit --since, --new, --active, --suspects and --online"
        )
    if file is not None:
        if source is not None or since or new or select != type(select)():
            raise WrongOption(
                "--input reads the series from its file: omit --from, --since, --new and the "
                "options that select sessions"
            )
        if why is not None:
            write(_explained(explaining.of_file(file, why), form or "json"), output)
            return
        found, series, code = series_changes.of_file(file, online), {}, 0
    else:
        from plumbline.history.history import History

        with History(source, say=warn) as history:
            listed = history.series(select, samples=False)
            code = warn_skipped(history)
        if why is not None:
            write(_explained(explaining.of_history(listed, why), form or "text"), output)
            return
        found = series_changes.of_history(listed, online)
        series = {series_changes.name_of(item): item for item in listed}
        causes.waive(found.changes, waivers.load(paths.reference()))
    changes = [
        change
        for change in found.changes
        if (not active or (change.worse and change.active))
        and (not since or str(series_changes.night_of(change.began)) >= str(_day(since)))
    ]
    if new:
        changes = causes.new(changes, series, _day(new))
    failing = [change for change in found.changes if change.failing and not change.waiver]
    grouped = causes.of(changes, failing, series)
    entries, form = _entries(grouped), form or ("json" if file else "text")
    columns = [*series_changes.COLUMNS, "cause", "waiver"]

    def text() -> str:
        changed = {} if file else _variables(grouped[:_MAX_READ], source)
        return _text(grouped, found.judged, changed)

    write(formats.as_rows(form, columns, entries, text), output)
    if suspects:
        for name, first, last in found.outliers:
            nights = f"night {first}" if first == last else f"nights {first} to {last}"
            warn(f"single outliers that came back: {name}: {nights}")
    if found.unjudged:
        warn(found.unjudged)
    if any(cause.marked for cause in grouped):
        sys.exit(1)
    sys.exit(code if found.judged else 2)


def _day(time: datetime.datetime):
    """Return the date in UTC."""
    import numpy as np

    return np.datetime64(time.astimezone(datetime.timezone.utc).date())


def _entries(causes: list) -> list[dict]:
    """Return the changes; those with the same number ``cause`` have one cause."""
    return [
        change.fields() | {"cause": number, "waiver": change.waiver.id if change.waiver else ""}
        for number, cause in enumerate(causes, 1)
        for change in cause.by_size
    ]


def _variables(causes: list, source: Path | None) -> dict[int, str]:
    """Return the tuning variables that changed with a cause, by the id() of the cause."""
    from plumbline.analysis.compare import hostfacts
    from plumbline.history.history import History
    from plumbline.history.series import Selection

    changed = {}
    with History(source) as history:
        for cause in [] if history.from_csv else causes:
            first = cause.first
            key, sides = first.key, (first.before, first.after)
            if first.before:
                of_cause = Selection(
                    key.system, key.partition, key.environment, key.check, node=key.node,
                    sessions=sides,
                )  # fmt: skip
                found = hostfacts.differences(history.records(of_cause), {sides[0]}, {sides[1]})
                changed[id(cause)] = shorten(map(str, found.variables), _MAX_VARIABLES)
    return changed


def _text(causes: list, judged: int, changed: dict[int, str]) -> str:
    head, body = table_lines(map(_cells, causes), _HEADS)
    lines = head if causes else []
    for cause, row in zip(causes, body, strict=True):
        lines += ["", fill(cause.title), *row, *_details(cause, changed.get(id(cause), ""))]
    count = pluralize(sum(len(cause.changes) for cause in causes), "change")
    if causes:
        lines.append("")
        count += f" of {pluralize(len(causes), 'cause')}"
    return "\n".join([*lines, f"plumbline: {count} in {judged} series judged"])


def _cells(cause) -> list[str]:
    largest = cause.by_size[0]
    interval = f"{largest.low:+.1%} to {largest.high:+.1%}" if largest.low == largest.low else ""
    return [
        largest.word,
        cause.since,
        cause.reported,
        cause.state,
        f"{largest.size:+.1%}",
        interval,
    ]


def _details(cause, changed: str) -> list[str]:
    """Return lines with the figures of a cause, the nodes that explain it, the sessions on both
    sides of it, the builds and variables that differ, and the waivers."""
    first = cause.first
    more = cause.changes[1:] and [f"{cause.figure(change)} {change.size:+.1%}"
                                  for change in cause.by_size]  # fmt: skip
    details = {
        "": shorten(more or [cause.figure(first)], _MAX_FIGURES),
        "on ": shorten(cause.nodes, _MAX_NODES),
        "between ": f"{first.before} and {first.after}" if first.before else "",
        "build ": first.build,
        "variables: ": changed,
        "above its ceiling: ": "the measurement is wrong, the machine is not better"
        if first.above_ceiling
        else "",
        "waived by ": str(cause.first.waiver or ""),
    }
    return [fill(f"{word}{detail}", "  ", "  ") for word, detail in details.items() if detail]


def _explained(levels: list, form: str) -> str:
    """Return the levels of series; as text, one table for each series."""
    from plumbline.analysis.trend import why

    rows = [asdict(level) for level in levels]
    return formats.as_rows(form, [*why.Level.__dataclass_fields__], rows, lambda: _levels(levels))


def _levels(levels: list) -> str:
    lines = []
    for name, several in itertools.groupby(levels, key=lambda level: level.series):
        of_one = list(several)
        noise = of_one[0]
        lines += [fill(name), fill(_noise(noise), "  ", "  ")]
        head, body = table_lines(map(_level_cells, of_one), _LEVEL_HEADS)
        lines += [f"  {line}" for line in [*head, *(line for row in body for line in row)]]
        lines.append("")
    return "\n".join(lines[:-1])


def _noise(level) -> str:
    text = f"a night is within {level.sigma:.2%} (1 sigma) of its prediction"
    if not level.slow:
        return f"{text}; no autocorrelated noise"
    return (
        f"{text}; autocorrelated noise of {level.slow:.2%} ({level.memory:g} from one night to the "
        "next) explains the nights best: smaller changes are hidden in it"
    )


def _level_cells(level) -> list[str]:
    cells = [str(level.start), str(level.end), str(level.values), f"{level.level:.5g}"]
    if level.change is None:
        return [*cells, "", "", ""]
    evidence = ["", ""]
    if level.evidence is not None:
        evidence = [f"{level.evidence:.1f}", f"{level.needed:.1f}"]
    return [*cells, f"{level.change:+.1%}", *evidence]


_LEVEL_HEADS = ("from", "to", "values", "level", "change", "evidence", "needed")
