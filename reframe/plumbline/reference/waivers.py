"""Waivers: known faults that a site lives with for a while, each with reason, owner and expiry.

Pure: knows nothing of ReFrame. ``reference/site/waivers.yaml`` has them; what one covers is shown
as waived, never as passed, and an expired one covers nothing.
"""

from __future__ import annotations

import datetime
import fnmatch
import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from plumbline.core.errors import Fault
from plumbline.core.text import base_name, near
from plumbline.placement import placement
from plumbline.reference import tables
from plumbline.reference.row import Text

#: Results of a test case that a waiver may cover. ``above-ceiling`` is none of them: a measurement
#: that cannot be true is to be mended, not lived with.
Result = Literal["fail", "invalid", "error"]

#: Longest that a waiver may run before somebody looks at it again.
LONGEST = datetime.timedelta(days=366)


def _a_date(value: object) -> object:
    """Numbers would be taken as seconds since 1970."""
    if type(value) is datetime.date:
        return value
    if not isinstance(value, str):
        raise ValueError("no date, such as 2026-12-31")
    try:
        found = datetime.datetime.strptime(value, "%d.%m.%Y").date()
    except ValueError:
        return value
    raise ValueError(f"write {found}")


class Match(pydantic.BaseModel):
    """What a waiver covers; what is empty matches all, and names take ``*`` and ``?``.

    :ivar check: the check's name, with or without its parameters.
    :ivar node: covers a test case that ran on it, whatever other nodes it had.
    :ivar results: of test cases; only ``fail`` is of single figures.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    system: Text
    partition: str = ""
    environment: str = ""
    check: str = ""
    metric: str = ""
    size: Annotated[int | None, pydantic.Field(ge=0, strict=True)] = None
    placement: str = ""
    at: str = ""
    node: str = ""
    results: Annotated[tuple[Result, ...], pydantic.Field(min_length=1)] = ("fail",)

    @pydantic.model_validator(mode="after")
    def _of_figures_only_failures(self) -> Match:
        of_figures = [n for n in ("metric", "size", "at") if getattr(self, n) not in ("", None)]
        others = [result for result in self.results if result != "fail"]
        if of_figures and others:
            raise ValueError(
                f"a test case that ended {others[0]!r} has no figures: leave out "
                f"{', '.join(of_figures)}, or write a second waiver"
            )
        return self


class Waiver(pydantic.BaseModel):
    """One known fault: an entry of ``waivers.yaml``.

    :ivar expires: the last day (UTC) on which it covers anything.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    id: Text
    reason: Text
    owner: Text
    expires: Annotated[datetime.date, pydantic.BeforeValidator(_a_date)]
    match: Match

    def expired(self, day: datetime.date | None = None) -> bool:
        """Whether it covers nothing any more; today unless told."""
        return (day or today()) > self.expires

    def __str__(self) -> str:
        return f"{self.id} of {self.owner}, until {self.expires}: {self.reason}"


class _Waivers(pydantic.RootModel[list[Waiver]]):
    @pydantic.model_validator(mode="before")
    @classmethod
    def _none_left(cls, content: object) -> object:
        """A file in which the last waiver was deleted holds none."""
        if isinstance(content, dict):
            raise ValueError(
                "it is a list of waivers, each begun with a dash, such as `- {id: slow-disk, "
                "reason: one disk is slow, owner: storage team, expires: 2026-12-31, match: "
                "{system: NAME}}`"
            )
        return [] if content is None else content


@dataclass(frozen=True)
class Subject:
    """A test case, or one figure of it, that a waiver may cover."""

    system: str
    partition: str
    environment: str
    check: str
    placement: str = ""
    nodes: tuple[str, ...] = ()
    metric: str = ""
    size: int | None = None
    at: str = ""


def today() -> datetime.date:
    """The day, UTC, as records and sessions are dated."""
    return datetime.datetime.now(datetime.timezone.utc).date()


def path_of(folder: Path) -> Path:
    """The file of the waivers in the folder of the reference tables."""
    return folder / "site" / "waivers.yaml"


def load(folder: Path) -> list[Waiver]:
    """The waivers of a site, expired ones too; none where there is no file.

    :arg folder: of the reference tables.
    :raises Fault: with every fault of the file, a line each.
    """
    path = path_of(folder)
    if not path.exists():
        return []
    found = tables.read_model(path, _Waivers, "waiver").root
    counts = Counter(waiver.id for waiver in found)
    faults = [
        f"{path}: id {name!r} stands {n} times: give each waiver one of its own"
        for name, n in counts.items()
        if n > 1
    ]
    latest = today() + LONGEST
    faults += [
        f"{path}: {waiver.id}: expires {waiver.expires}, more than a year from now: a known fault "
        f"is looked at each year, so write {latest} at most"
        for waiver in found
        if waiver.expires > latest
    ]
    if faults:
        raise Fault("\n".join(faults), code="reference.wrong-waiver")
    return found


@functools.cache
def loaded(folder: Path) -> tuple[Waiver, ...]:
    """The waivers of a folder, read once.

    :raises Fault: with every fault of the file, a line each.
    """
    return tuple(load(folder))


def named(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern, in which only ``*`` and ``?`` stand for others."""
    return not pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def fits(match: Match, subject: Subject) -> bool:
    """Whether a waiver is about a test case, or about a figure of one."""
    check = base_name(subject.check)
    return (
        named(match.system, subject.system)
        and named(match.partition, subject.partition)
        and named(match.environment, subject.environment)
        and (named(match.check, check) or named(match.check, check.partition(" ")[0]))
        and named(match.metric, subject.metric)
        and match.size in (None, subject.size)
        and named(match.placement, subject.placement)
        and named(match.at, subject.at)
        and (not match.node or any(_names_node(match.node, node) for node in subject.nodes))
    )


def _names_node(pattern: str, node: str) -> bool:
    """Whether a pattern names a node, whose name may be told with its domain."""
    return named(pattern, node) or named(pattern, node.partition(".")[0])


def about(waivers: Iterable[Waiver], subject: Subject, result: str) -> list[Waiver]:
    """The waivers, expired ones too, that are about a result of a test case or of a figure."""
    return [w for w in waivers if result in w.match.results and fits(w.match, subject)]


def covering(waivers: Iterable[Waiver], subject: Subject, result: str) -> Waiver | None:
    """The first waiver in force that covers a result, ``None`` if none does."""
    return next((w for w in about(waivers, subject, result) if not w.expired()), None)


def expired(waivers: Iterable[Waiver], subject: Subject, result: str) -> list[Waiver]:
    """The waivers that would cover a result if they had not expired."""
    return [waiver for waiver in about(waivers, subject, result) if waiver.expired()]


def faults_of(
    waivers: Iterable[Waiver], path: Path, systems: dict[str, dict[str, Any]], metrics: set[str]
) -> Iterator[str]:
    """What is wrong with waivers: expired, or about nothing that there is; a line each.

    :arg path: the file of the waivers.
    :arg systems: name -> content of the system's file.
    :arg metrics: every metric that is registered.
    """
    for waiver in waivers:
        where = f"{path}: {waiver.id}"
        match = waiver.match
        if waiver.expired():
            yield f"{where}: expired waiver {waiver}: renew it with a new date, or take it out"
        there = [content for name, content in systems.items() if named(match.system, name)]
        names = {
            "system": list(systems),
            "partition": [p["name"] for c in there for p in c["systems"][0]["partitions"]],
            "environment": [e["name"] for c in there for e in c.get("environments", [])],
            "metric": sorted(metrics),
        }
        for key, known in names.items():
            pattern = getattr(match, key)
            if not any(named(pattern, name) for name in known):
                yield f"{where}: match.{key}: no {key} {pattern!r}; {near(pattern, known)}"
                break
        literal = match.placement and not {"*", "?"} & {*match.placement}
        if literal and not placement.known(match.placement):
            told = placement.meant(match.placement)
            yield f"{where}: match.placement: no placement {match.placement!r}; {told}"


def about_no_case(waivers: Iterable[Waiver], path: Path, cases: Iterable[str]) -> Iterator[str]:
    """The waivers of a system that fit none of its test cases, a line each.

    :arg cases: as an inventory names them, all of one system.
    """
    subjects = []
    for case in cases:
        check, _, where = case.rpartition(" @")
        system, _, rest = where.partition(":")
        partition, _, environment = rest.partition("+")
        subjects.append(Subject(system, partition, environment, check))
    for waiver in waivers:
        match = waiver.match
        # Where it runs, and what it measures, is not told by a case's name.
        blank = {"metric": "", "size": None, "placement": "", "at": "", "node": ""}
        known = match.model_copy(update=blank)
        mine = any(named(match.system, subject.system) for subject in subjects)
        if mine and not any(fits(known, subject) for subject in subjects):
            yield (
                f"{path}: {waiver.id}: match: fits no test case of {subjects[0].system}: mend it, "
                f"or take it out"
            )
