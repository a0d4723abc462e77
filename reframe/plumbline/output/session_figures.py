"""What one session measured, figure by figure, beside what is usual and its reference."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from plumbline.analysis.trend import series_changes
from plumbline.analysis.trend.series_changes import SeriesChange
from plumbline.check.record import FAILED, MEASURED, short_name
from plumbline.core import formats, pool
from plumbline.core.text import fill, pluralize, shorten, table_lines
from plumbline.history.history import History
from plumbline.history.rows import CaseRow, SessionRow
from plumbline.history.series import Key, Selection, Series
from plumbline.output.report.usual_values import is_lost, loss_of, stands_out, usual_values
from plumbline.reference.lookup import format_bound

_HEADS = ("figure", "value", "usual", "change", "verdict", "bound")
#: A heading lists at most so many nodes, and a reason so many test cases.
_MAX_LISTED = 4


@dataclass(frozen=True)
class SessionFigure:
    """A figure of a session. Numbers that are not known are ``None``.

    :ivar nodes: that its test case used.
    :ivar usual: median of ``earlier`` values of its own history: those of ``usual_values``.
    :ivar change: of the value from the usual one, relative.
    :ivar worse: it stands out from the usual values, or is below them since a loss that lasts.
    :ivar since: the day on which a loss that lasts began, or empty.
    """

    key: Key
    nodes: list[str]
    value: float
    unit: str
    better: str
    usual: float | None
    earlier: int
    change: float | None
    worse: bool
    since: str
    verdict: str
    lower: float | None
    upper: float | None
    ceiling: float | None
    reference: str

    @property
    def failed(self) -> bool:
        return self.verdict in FAILED

    @property
    def rank(self) -> int:
        """Sort key: what failed is first, then what is worse, then what is waived."""
        return 0 if self.failed else 1 if self.worse else 2 if self.verdict == "waived" else 3


@dataclass(frozen=True)
class SessionFigures:
    """The content of a session.

    :ivar figures: by check; of repeats, the worst.
    :ivar printed: those that are printed, the worst first.
    :ivar unmeasured: test cases that did not measure.
    """

    row: SessionRow
    ended: bool
    figures: list[SessionFigure]
    printed: list[SessionFigure]
    unmeasured: list[CaseRow]


def load(
    history: History,
    select: Selection,
    failed: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> SessionFigures:
    """Read the session that a selection names, or the newest one of it.

    :arg failed: whether only figures that failed or are worse than usual are printed.
    :arg say: receives a message if this takes long.
    :raises Fault: if there is none.
    """
    row = history.sessions(select)[-1]
    chosen = replace(select, sessions=(row.session,), since=None, until=None, extras={})
    # The plan is of the whole session.
    row = replace(row, planned=row.ended + len(history.missing(chosen)))
    cases = [one for one in history.cases(chosen) if not one.attempt] if row.results else []
    if any(case.result in MEASURED for case in cases):
        until = (row.start + np.timedelta64(1, "s")).astype(datetime.datetime)
        earlier = replace(chosen, sessions=(), until=until)
        found = [
            (series, index)
            for series in history.series(earlier, samples=False)
            if len(index := np.flatnonzero(series.sessions == row.session))
        ]
    else:
        found = []
    if len(found) >= series_changes.MANY:
        say(f"searching {len(found)} series for losses that last")
    # A session's repeats are one night.
    nights = (series.at(np.arange(index[0] + 1)) for series, index in found)
    listing = series_changes.of_history(nights, count=len(found), processes=pool.PROCESSES)
    changes = listing.by_key()
    figures = [_worst(series, index, changes.get(series.key, [])) for series, index in found]
    return SessionFigures(
        row,
        row.session not in history.unended([row]),
        figures,
        sorted((f for f in figures if not failed or f.rank < 2), key=lambda f: f.rank),
        [case for case in cases if case.result not in MEASURED],
    )


def _worst(series: Series, repeats: np.ndarray, changes: list[SeriesChange]) -> SessionFigure:
    """Return a session's value of a series; of its repeats (``--repeat``), the worst."""
    before = np.arange(repeats[0])
    found = [_figure(series.at(np.append(before, one)), changes) for one in repeats]
    return min(found, key=lambda figure: figure.rank)


def _figure(series: Series, changes: list[SeriesChange]) -> SessionFigure:
    """Return the newest value of a series."""
    value = float(series.values[-1])
    earlier = usual_values(series.values, changes)
    median = float(np.median(earlier)) if len(earlier) else math.nan
    lost = [change for change in changes if is_lost(change)]
    loss = loss_of(value, earlier, series.better)
    bounds = {name: _number(getattr(series, name)[-1]) for name in ("lower", "upper", "ceiling")}
    return SessionFigure(
        key=series.key,
        nodes=[name for name in str(series.nodes[-1]).split(",") if name],
        value=value,
        unit=series.unit,
        better=series.better,
        usual=_number(median),
        earlier=len(earlier),
        change=_number((value - median) / abs(median) if median else math.nan),
        worse=bool(lost and loss > 0) or stands_out(value, earlier, series.better),
        since=str(lost[0].began.astype("datetime64[D]")) if lost else "",
        verdict=str(series.verdicts[-1]),
        **bounds,
        reference=str(series.references[-1] or ""),
    )


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# -- formats ---------------------------------------------------------------------------------------


def _fields(figure: SessionFigure) -> dict[str, object]:
    """Return a figure as a flat mapping."""
    key = asdict(figure.key) | {"size": None if figure.key.size < 0 else figure.key.size}
    return key | {f.name: getattr(figure, f.name) for f in fields(figure) if f.name != "key"}


#: Columns of the CSV, and fields of a figure in the JSON.
_COLUMNS = [f.name for f in (*fields(Key), *fields(SessionFigure)) if f.name != "key"]


def as_json(found: SessionFigures) -> str:
    """Return the session as JSON."""
    return formats.as_json(
        {
            "session": found.row.session,
            "system": found.row.system,
            "start": f"{found.row.start}Z",
            "ended": found.ended,
            "extras": found.row.extras,
            "results": found.row.results,
            "planned": found.row.planned,
            "figures": [_fields(figure) for figure in found.printed],
            "unmeasured": [
                {"check": case.check, "partition": case.partition, "environment": case.environment,
                 "result": case.result, "reason": case.reason}
                for case in found.unmeasured
            ],
        }
    )  # fmt: skip


def as_csv(found: SessionFigures) -> str:
    """Return CSV with a row for each figure."""
    rows = (_fields(figure) | {"nodes": " ".join(figure.nodes)} for figure in found.printed)
    return formats.as_csv(_COLUMNS, rows)


def text(found: SessionFigures) -> str:
    """Return the session for a terminal, with a heading for each check, the worst first."""
    row = found.row
    extras = "".join(f", {key}={value}" for key, value in row.extras.items())
    lines = [
        fill(
            f"session {row.session} of {row.system}, {str(row.start).replace('T', ' ')} UTC{extras}"
        )
    ]
    groups: dict[str, list[SessionFigure]] = {}
    for figure in found.printed:
        nodes = "" if figure.key.node else f", on {shorten(figure.nodes, _MAX_LISTED)}"
        groups.setdefault(f"{figure.key.heading}{nodes}", []).append(figure)
    if groups:
        head, body = table_lines(
            (_cells(figure) for listed in groups.values() for figure in listed), _HEADS
        )
        rows = iter(body)
        lines += ["", *head]
        for heading, listed in groups.items():
            lines += ["", fill(heading)]
            for figure in listed:
                lines += next(rows)
                if figure.reference and figure.verdict != "pass":
                    lines.append(f"  by {figure.reference}")
            by = dict.fromkeys(f.reference for f in listed if f.verdict == "pass")
            lines += [fill(f"pass by {shorten(by, _MAX_LISTED)}", "  ", "    ")] if by else []
    reasons: dict[tuple[str, str], list[str]] = {}
    for case in found.unmeasured:
        name = short_name(case)
        reasons.setdefault((case.result, case.reason), []).append(name)
    lines += [""] + [
        fill(f"{result}: {shorten(cases, _MAX_LISTED)}: {reason}")
        for (result, reason), cases in reasons.items()
    ]
    return "\n".join([*lines, *map(fill, _counts(found))])


def _counts(found: SessionFigures) -> list[str]:
    row = found.row
    missing = row.planned - row.ended
    results = dict(row.results) | ({"unfinished": missing} if missing > 0 else {})
    cases = ", ".join(f"{count} {result}" for result, count in results.items()) or "none"
    verdicts = Counter(figure.verdict for figure in found.figures)
    figures = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()) or "none"
    worse = sum(figure.worse for figure in found.figures)
    state = "" if found.ended else "; it has not ended"
    return [
        f"plumbline: {pluralize(row.planned, 'test case')}: {cases}{state}",
        f"plumbline: {pluralize(len(found.figures), 'figure')}: {figures}; {worse} worse than "
        f"usual",
    ]


def _cells(figure: SessionFigure) -> list[str]:
    change = "" if figure.change is None else f"{figure.change:+.1%}"
    verdict = "" if figure.verdict == "not-asserted" else figure.verdict
    return [
        figure.key.figure,
        f"{figure.value:.6g} {figure.unit}".strip(),
        "" if figure.usual is None else f"{figure.usual:.6g}",
        f"{change} worse" if figure.worse else change,
        verdict.upper() if figure.failed else verdict,
        _bound(figure),
    ]


def _bound(figure: SessionFigure) -> str:
    """Return the bounds, or the ceiling that was exceeded."""
    if figure.verdict == "above-ceiling" and figure.ceiling is not None:
        return f"ceiling {format_bound(figure.ceiling)}"
    lower, upper = (None if bound is None else format_bound(bound)
                    for bound in (figure.lower, figure.upper))  # fmt: skip
    if lower and upper:
        return f"{lower} to {upper}"
    return f">= {lower}" if lower else f"<= {upper}" if upper else ""


#: Format -> function that writes it.
FORMATS = {"text": text, "json": as_json, "csv": as_csv}
