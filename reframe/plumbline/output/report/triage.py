"""What of a report is known and accepted: the waivers that apply by now, and one for each finding.

A record has the waivers of the night in which it was written. The report applies those of today, so
that what is acknowledged in the morning is not red at noon, and what a waiver no longer covers is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import yaml

from plumbline.analysis import causes
from plumbline.analysis.causes import Cause
from plumbline.analysis.screen import Flag
from plumbline.analysis.trend.series_changes import SeriesChange
from plumbline.check.record import FAILED, OUTSIDE
from plumbline.core import units
from plumbline.core.text import base_name
from plumbline.history.series import Key, Series
from plumbline.output.report import status, text
from plumbline.output.report.figures import Panel
from plumbline.output.report.status import CaseState, FigureState
from plumbline.reference import waivers
from plumbline.reference.lookup import References, loss_of
from plumbline.reference.waivers import Subject, Waiver

#: Statuses of a test case that a waiver may cover.
WAIVABLE = ("fail", "invalid", "error")
#: Verdicts on a figure that the waivers of today may change.
_JUDGED = ("fail", "waived")
#: A proposed waiver covers a loss that is larger than today's by so much: `plumbline compare` calls
#: a smaller difference unchanged (``--min-effect``).
MARGIN = 0.02
#: Term of a waiver that the pages propose.
TERM = datetime.timedelta(days=30)


@dataclass(frozen=True)
class OpenFinding:
    """What can be acknowledged: a red test case, active losses of one of them that began together,
    or a node, GPU, pair, link or switch that is slow.

    :ivar id: that names it in ``plumbline waive``, and its waiver.
    :ivar kind: status of the test case, or kind of the change, or ``slow``.
    :ivar subjects: the test case, or its figures, or what is slow, each with its loss.
    :ivar since: the day on which it began.
    :ivar loss: the largest loss; ``None`` if one is unknown, or the case has no figures.
    :ivar earlier: why the waiver that it had covers it no more; empty if it had none.
    """

    id: str
    kind: str
    subjects: tuple[Subject, ...]
    since: str
    loss: float | None
    earlier: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Its id, and what `plumbline screen` prints if it is slow."""
        return self.id, *(self.subjects[0].nodes if self.kind == "slow" else ())

    @property
    def title(self) -> str:
        """The test case, or what is slow."""
        one = self.subjects[0]
        if self.kind == "slow":
            return f"{one.nodes[0]} of {one.system}, flagged by `plumbline screen`"
        nodes = f" on {', '.join(one.nodes)}" if one.nodes else ""
        return f"{one.check} @{one.system}:{one.partition}+{one.environment}{nodes}"

    @property
    def figures(self) -> list[str]:
        """The names of its figures."""
        return [
            text.figure(one.metric, one.size, one.location) for one in self.subjects if one.metric
        ]

    def match(self) -> dict[str, object]:
        """Return what its waiver covers: what all of its subjects have in common."""
        found: dict[str, object] = {}
        for name in ("system", "partition", "environment", "check", "node", "metric", "size",
                     "placement", "location"):  # fmt: skip
            values = {_field(one, name) for one in self.subjects}
            if len(values) == 1 and (value := values.pop()) not in ("", None):
                found[name] = value
        if f"={found.get('placement', '')}" in str(found.get("check", "")):
            found.pop("placement", None)  # The check's name has it.
        if self.kind in ("invalid", "error"):
            return found | {"results": [self.kind]}
        found["results"] = ["slow"] if self.kind == "slow" else [*waivers.OF_FIGURES]
        if self.loss is not None:
            found["max_loss"] = f"{math.ceil(round(100 * (self.loss + MARGIN), 6))} %"
        return found

    def yaml(
        self,
        owner: str = "",
        reason: str = "",
        ticket: str = "",
        expires: datetime.date | None = None,
    ) -> str:
        """Return its waiver as an entry of ``waivers.yaml``; an empty owner and reason are to be
        filled in."""
        content = {
            "id": self.id,
            "reason": reason,
            "owner": owner,
            "expires": expires or waivers.today() + TERM,
            "ticket": ticket,
            "match": self.match(),
        }
        return yaml.safe_dump([content], sort_keys=False, allow_unicode=True, width=100)


def _field(subject: Subject, name: str) -> object:
    return ",".join(subject.nodes) if name == "node" else getattr(subject, name)


class Triage:
    """Applies the waivers of a day to what a report shows."""

    def __init__(self, known: Sequence[Waiver], references: References, day: datetime.date):
        self._known, self._references, self._day = known, references, day
        self._ids = {waiver.id: waiver for waiver in known}
        #: Verdicts by today's waivers: figure of a test case -> session -> verdict.
        self._judged: dict[tuple, dict[str, str]] = {}

    # -- test cases ---------------------------------------------------------------------------

    def apply(self, cases: Iterable[CaseState]) -> None:
        """Let red test cases be waived if waivers cover them by now, and waived ones fail if their
        waivers have ended or cover a smaller loss."""
        for case in cases:
            judged = [one for one in case.findings if one.verdict in _JUDGED]
            for figure in judged:
                self._judge(case, figure)
                of_figure = self._judged.setdefault(case.identity + figure.identity, {})
                # Of the repeats of a session, one that fails counts.
                if of_figure.get(case.session) != "fail":
                    of_figure[case.session] = figure.verdict
            if case.status in OUTSIDE and judged:
                case.counts["fail"] = sum(one.verdict == "fail" for one in judged)
                case.counts["waived"] = len(judged) - case.counts["fail"]
                case.status = next((one for one in FAILED if case.counts[one]), "waived")
                case.waiver = next((one.waiver for one in judged if one.waiver), "")
            elif case.status in (*WAIVABLE, "waived"):
                # The history does not have what a waived case without figures was.
                known = case.status in WAIVABLE
                results = (case.status,) if known else ("invalid", "error")
                waiver = next(filter(None, (self._covering(case, one) for one in results)), None)
                case.status, case.waiver = ("waived", waiver.id) if waiver else (results[0], "")

    def of_series(self, series: Series) -> Series:
        """Return a series with the verdicts by today's waivers of what was applied."""
        judged = self._judged.get(status.identity_of(series.key), {})
        if not judged:
            return series
        verdicts = series.verdicts.copy()
        lost = np.isin(verdicts.astype(str), _JUDGED)
        for session, verdict in judged.items():
            verdicts[lost & (series.sessions == session)] = verdict
        return dataclasses.replace(series, verdicts=verdicts)

    def _open(self, kind: str, subjects: Sequence[Subject], since: str) -> OpenFinding:
        """Return a finding. If its waiver covers it no more, it has a number in its id, since a
        second waiver has another."""
        first = found = _finding(kind, subjects, since)
        for number in itertools.count(2):
            waiver = self._ids.get(found.id)
            if waiver is None:
                break
            why = f"ended on {waiver.expires}"
            if not waiver.expired(self._day):
                most = waiver.match.max_loss
                why = "covers other figures" if most is None else f"covers losses up to {most:.0%}"
            found = dataclasses.replace(
                first, id=f"{first.id}-{number}",
                earlier=f"waiver {waiver.id} of {waiver.owner} {why}",
            )  # fmt: skip
        return found

    def _covering(self, case: CaseState, result: str) -> Waiver | None:
        return waivers.covering(self._known, _subject(case), result, self._day)

    def _judge(self, case: CaseState, figure: FigureState) -> None:
        # A loss that is not known exceeds each limit, unless the night, which knew it, waived it.
        subject = self._of_figure(case, figure, None if figure.waiver in self._ids else math.inf)
        waiver = waivers.covering(self._known, subject, "fail", self._day)
        figure.verdict, figure.waiver = ("waived", waiver.id) if waiver else ("fail", "")

    def _of_figure(self, case: CaseState, figure: FigureState, unknown: float | None) -> Subject:
        """Return a figure as waivers identify it.

        :arg unknown: its loss, if that is not known.
        """
        metric, size, location, placement = figure.identity
        row = self._references.tables.rows.get(figure.reference)
        loss = None
        with contextlib.suppress(units.UnitError):
            if row is not None:
                loss = loss_of(figure.value, row.used(figure.unit)[0], figure.better)
        return dataclasses.replace(
            _subject(case), placement=placement, metric=metric, location=location,
            size=None if size < 0 else size, loss=unknown if loss is None else loss,
        )  # fmt: skip

    def of_cases(self, cases: Iterable[CaseState]) -> list[OpenFinding]:
        """Return what can be acknowledged of test cases: those that are not waived, and may be."""
        return [self._of_case(case) for case in cases if case.status in WAIVABLE]

    def _of_case(self, case: CaseState) -> OpenFinding:
        failing = [one for one in case.findings if one.verdict == "fail"]
        subjects = [self._of_figure(case, one, None) for one in failing] or [_subject(case)]
        if not case.node:
            # The nodes of a job change from night to night; that of a sweep is what it measured.
            nodes = (case.swept,) if case.swept else ()
            subjects = [dataclasses.replace(one, nodes=nodes) for one in subjects]
        since = case.time if case.since is None else case.since
        return self._open(case.status, subjects, "" if since is None else text.day(since))

    # -- what is slow -------------------------------------------------------------------------

    def of_flags(self, system: str, flags: Iterable[Flag]) -> list[OpenFinding]:
        """Return what can be acknowledged of what screening flags of a system: what is slow now and
        not waived. A setting is no loss."""
        return [
            self._open("slow", [flag.subject(system)], text.night(flag.since))
            for flag in flags
            if flag.until is None and flag.waiver is None and flag.kind != "setting"
        ]

    # -- changes ------------------------------------------------------------------------------

    def of_cause(self, cause: Cause, every: dict[Key, list[SeriesChange]]) -> list[OpenFinding]:
        """Return what can be acknowledged of changes that began together: the active losses that
        are not waived, one finding for each node.

        :arg every: all changes of each series.
        """
        by_node: dict[str, list[SeriesChange]] = {}
        for change in cause.changes:
            if change.active and change.worse and not change.above_ceiling and not change.waiver:
                by_node.setdefault(change.key.node, []).append(change)
        return [
            self._open(
                changes[0].kind,
                [
                    subject
                    for change in changes
                    for other, subject in causes.losses(every[change.key])
                    if other.start == change.start
                ],
                text.day(min(change.began for change in changes)),
            )
            for changes in by_node.values()
        ]

    def of_figures(
        self,
        figures: Iterable[Panel],
        cause_of: Mapping[SeriesChange, Cause],
        every: dict[Key, list[SeriesChange]],
    ) -> dict[str, tuple[list[OpenFinding], list[Panel]]]:
        """Return what can be acknowledged of the active losses of each figure of a page, by anchor:
        the findings that no figure above has, and the figures above that have the others, since
        losses that began together have one waiver.

        :arg cause_of: the cause of each change.
        :arg every: all changes of each series.
        """
        first: dict[str, Panel] = {}
        found = {}
        for figure in figures:
            nodes: dict[int, tuple[Cause, set[str]]] = {}
            for change in figure.losses:
                if cause := cause_of.get(change):
                    nodes.setdefault(id(cause), (cause, set()))[1].add(change.key.node)
            listed = [
                one
                for cause, wanted in nodes.values()
                for one in self.of_cause(cause.of_nodes(wanted), every)
            ]
            above = {first[one.id].anchor: first[one.id] for one in listed if one.id in first}
            here = [one for one in listed if first.setdefault(one.id, figure) is figure]
            found[figure.anchor] = here, [*above.values()]
        return found


def _subject(case: CaseState) -> Subject:
    nodes = tuple(case.nodes) or ((case.node,) if case.node else ())
    return Subject(case.system, case.partition, case.environment, base_name(case.check),
                   case.placement, nodes)  # fmt: skip


def _finding(kind: str, subjects: Sequence[Subject], since: str) -> OpenFinding:
    one = subjects[0]
    losses = [subject.loss for subject in subjects]
    known = [loss for loss in losses if loss is not None]
    metrics = {subject.metric for subject in subjects}
    words = (
        one.system,
        one.check.partition(" ")[0],
        *(metrics if len(metrics) == 1 else ()),
        *one.nodes,
    )
    readable = re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:32].rstrip("-")
    about = (kind, since, one.system, one.partition, one.environment, one.check, *one.nodes)
    mark = hashlib.sha256("\0".join(about).encode(errors="replace")).hexdigest()[:6]
    return OpenFinding(f"{readable}-{mark}".lstrip("-"), kind, tuple(subjects), since,
                   max(known) if known and len(known) == len(losses) else None)  # fmt: skip
