"""Waivers: known faults that a site accepts for a limited time, each with reason, owner and expiry.

Pure: independent of ReFrame. They are in ``reference/waivers.yaml`` of the site. A covered failure
is shown as waived, never as passed, and an expired waiver covers nothing.
"""

from __future__ import annotations

import datetime
import fnmatch
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml

from plumbline.core import files
from plumbline.core.errors import Fault, with_code
from plumbline.core.paths import Folder, layers_of
from plumbline.core.text import base_name, suggest
from plumbline.core.yamlfile import parse_yaml, read_model, read_yaml, validated
from plumbline.placement import placement
from plumbline.reference.row import Strict, Text

#: Results of a test case that a waiver may cover; ``regression``: a lasting change of a figure for
#: the worse, as `plumbline trend` finds it; and ``slow``: a node or other unit that `plumbline
#: screen` flags. ``above-ceiling`` cannot be waived: such a measurement is wrong and must be fixed.
Result = Literal["fail", "invalid", "error", "regression", "slow"]
#: Those that single figures have.
OF_FIGURES = ("fail", "regression")
#: Those that only a history shows, and no single session.
OF_HISTORY = ("regression", "slow")

#: Longest term of a waiver.
LONGEST = datetime.timedelta(days=366)


def _check_date(value: object) -> object:
    """Refuse numbers, which pydantic reads as seconds since 1970, and suggest ISO's order."""
    if type(value) is datetime.date:
        return value
    if not isinstance(value, str):
        raise ValueError("not a date, such as 2026-12-31")
    try:
        found = datetime.datetime.strptime(value, "%d.%m.%Y").date()
    except ValueError:
        return value
    raise ValueError(f"write {found}")


def _read_share(value: object) -> object:
    """Read ``15 %`` as a share; a bare number could be meant as per cent or as a share."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
    if found or value is None:
        return float(found[1]) / 100 if found else None
    raise ValueError(f"{value!r} is not in per cent, such as 15 %")


class Match(Strict, str_strip_whitespace=True):
    """What a waiver covers; empty fields match all, and names may have ``*`` and ``?``.

    :ivar check: the check's name, with or without its parameters.
    :ivar node: one of the nodes on which a test case ran, or the name of a slow unit.
    :ivar results: of test cases; only those of ``OF_FIGURES`` also apply to single figures.
    :ivar max_loss: the largest loss that it covers, as a share: see :class:`Subject`.
    """

    system: Text
    partition: str = ""
    environment: str = ""
    check: str = ""
    metric: str = ""
    size: Annotated[int | None, pydantic.Field(ge=0, strict=True)] = None
    placement: str = ""
    location: str = ""
    node: str = ""
    results: Annotated[tuple[Result, ...], pydantic.Field(min_length=1)] = ("fail",)
    max_loss: Annotated[float | None, pydantic.BeforeValidator(_read_share)] = None

    @pydantic.model_validator(mode="after")
    def _only_some_results_have_figures(self) -> Match:
        names = ("metric", "size", "location", "max_loss")
        of_figures = [n for n in names if getattr(self, n) not in ("", None)]
        others = [result for result in self.results if result not in (*OF_FIGURES, "slow")]
        if of_figures and others:
            raise ValueError(
                f"a test case with the result {others[0]!r} has no figures: remove "
                f"{', '.join(of_figures)}, or write a second waiver"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _slow_is_a_node_in_all_its_checks(self) -> Match:
        names = ("partition", "environment", "check", "metric", "size", "placement", "location")
        of_cases = [name for name in names if getattr(self, name) not in ("", None)]
        if "slow" in self.results and (of_cases or not self.node):
            wrong = [f"remove {', '.join(of_cases)}"] if of_cases else []
            wrong += [] if self.node else ["add node"]
            raise ValueError(
                f"what is slow, with the result 'slow', is a node in all of its checks: "
                f"{' and '.join(wrong)}, or write a second waiver"
            )
        return self


class Waiver(Strict, str_strip_whitespace=True):
    """One known fault: an entry of ``waivers.yaml``.

    :ivar expires: the last day (UTC) on which it covers anything.
    :ivar ticket: where the fault is followed up, if anywhere.
    """

    id: Text
    reason: Text
    owner: Text
    expires: Annotated[datetime.date, pydantic.BeforeValidator(_check_date)]
    ticket: str = ""
    match: Match

    def expired(self, day: datetime.date | None = None) -> bool:
        """Return whether it has expired on a day, by default today."""
        return (day or today()) > self.expires

    def __str__(self) -> str:
        ticket = f" ({self.ticket})" if self.ticket else ""
        return f"{self.id} of {self.owner}, until {self.expires}: {self.reason}{ticket}"


class _Waivers(pydantic.RootModel[list[Waiver]]):
    @pydantic.model_validator(mode="before")
    @classmethod
    def _accept_empty_file(cls, content: object) -> object:
        """Accept a file without any waiver, which YAML reads as ``None``."""
        if isinstance(content, dict):
            raise ValueError(
                "the file must be a list of waivers, each after a dash, such as `- {id: slow-disk, "
                "reason: one disk is slow, owner: storage team, expires: 2026-12-31, match: "
                "{system: NAME}}`"
            )
        return [] if content is None else content


@dataclass(frozen=True)
class Subject:
    """A test case, or one figure of it, or a slow unit, that a waiver may cover.

    :ivar nodes: of the test case; or the name of the unit, as `plumbline screen` prints it.
    :ivar loss: how much worse the figure is, relative: a failed one than its reference, a regressed
        one than before its losses that last, a slow unit than a healthy one. ``None`` if any loss
        is meant.
    """

    system: str
    partition: str
    environment: str
    check: str
    placement: str = ""
    nodes: tuple[str, ...] = ()
    metric: str = ""
    size: int | None = None
    location: str = ""
    loss: float | None = None


def today() -> datetime.date:
    """Return the current date in UTC, as in records and sessions."""
    return datetime.datetime.now(datetime.timezone.utc).date()


def path_of(folder: Folder) -> Path:
    """Return the path of the waivers in the folder of the reference tables."""
    return layers_of(folder).find("waivers.yaml")


def load(folder: Folder) -> list[Waiver]:
    """Return the waivers of a site, also expired ones; none if there is no file.

    :arg folder: of the reference tables.
    :raises Fault: with all faults of the file, one per line.
    """
    path = path_of(folder)
    if not path.exists():
        return []
    found = read_model(path, _Waivers, "waiver").root
    _refuse_faulty(path, found)
    return found


def load_valid(folder: Folder) -> tuple[list[Waiver], list[str]]:
    """Return the waivers of a site without invalid ones, and a message with its reason code about
    each of these. For those who only show results: a run is refused.

    Of several with the same id, the first is valid.

    :arg folder: of the reference tables.
    """
    path = path_of(folder)
    content: Any = None
    found: list[Waiver] = []
    faults: list[str] = []
    try:
        content = read_yaml(path) if path.exists() else None
        found = validated(content, _Waivers, str(path), "waiver").root
    except Fault as fault:
        faults = [with_code(line, fault.code) for line in str(fault).splitlines()]
        found = [*_valid(content)] if isinstance(content, list) else []
    faults += [with_code(line, "reference.wrong-waiver") for line in _faults_of(path, found)]
    usable: dict[str, Waiver] = {}
    for waiver in found:
        if waiver.expires <= today() + LONGEST:
            usable.setdefault(waiver.id, waiver)
    return [*usable.values()], faults


def _valid(entries: list[Any]) -> Iterator[Waiver]:
    for entry in entries:
        try:
            yield Waiver.model_validate(entry)
        except pydantic.ValidationError:
            continue


def _refuse_faulty(path: Path, found: list[Waiver]) -> None:
    """Raise a fault for waivers with the same id, or with a term that is too long."""
    faults = _faults_of(path, found)
    if faults:
        raise Fault("\n".join(faults), code="reference.wrong-waiver")


def _faults_of(path: Path, found: list[Waiver]) -> list[str]:
    """Return a message about each id that several have, and each term that is too long."""
    counts = Counter(waiver.id for waiver in found)
    faults = [
        f"{path}: id {name!r} is used {n} times: give each waiver its own id"
        for name, n in counts.items()
        if n > 1
    ]
    latest = today() + LONGEST
    return faults + [
        f"{path}: {waiver.id}: expires {waiver.expires}, more than a year from now: write {latest} "
        f"or earlier, as each known fault is reviewed yearly"
        for waiver in found
        if waiver.expires > latest
    ]


def add(folder: Folder, text: str) -> Path:
    """Add waivers to the site's file, which keeps its comments, and return its path.

    :arg folder: of the reference tables.
    :arg text: the entries, as YAML.
    :raises Fault: if they are invalid, the file is, or has one of their ids, or cannot be written.
    """
    path = layers_of(folder).own / "waivers.yaml"
    before = files.read_text(path) if path.exists() else ""
    known = load(folder) if before else []
    new = validated(parse_yaml(text), _Waivers, str(path), "new waiver").root
    for name in sorted({waiver.id for waiver in known} & {waiver.id for waiver in new}):
        raise Fault(
            f"{path}: has waiver {name!r} already, which has ended or covers a smaller loss: "
            f"change its expires or its max_loss there",
            code="reference.wrong-waiver",
        )
    _refuse_faulty(path, [*known, *new])
    after = f"{before.rstrip()}\n{text}".lstrip("\n")
    try:
        whole = _Waivers.model_validate(parse_yaml(after)).root
    except (yaml.YAMLError, pydantic.ValidationError):
        whole = []
    if whole != [*known, *new]:
        raise Fault(
            f"{path}: cannot be extended, since it is not a list with a dash at the beginning of "
            f"each entry's line: add these lines by hand:\n{text}",
            code="reference.wrong-waiver",
        )
    message = "cannot be written: {}: correct its permissions, or add these lines by hand:\n"
    with files.writing(path, message + text):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, after)
    return path


@functools.cache
def loaded(folder: Folder) -> tuple[Waiver, ...]:
    """Return the waivers of a folder, read once.

    :raises Fault: as :func:`load`.
    """
    return tuple(load(folder))


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern, in which only ``*`` and ``?`` are special."""
    return not pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def applies_to(match: Match, subject: Subject) -> bool:
    """Return whether a waiver applies to a test case or figure."""
    check = base_name(subject.check)
    return (
        (match.max_loss is None or subject.loss is None or subject.loss <= match.max_loss)
        and matches(match.system, subject.system)
        and matches(match.partition, subject.partition)
        and matches(match.environment, subject.environment)
        and (matches(match.check, check) or matches(match.check, check.partition(" ")[0]))
        and matches(match.metric, subject.metric)
        and match.size in (None, subject.size)
        and matches(match.placement, subject.placement)
        and matches(match.location, subject.location)
        and (not match.node or any(_matches_node(match.node, node) for node in subject.nodes))
    )


def _matches_node(pattern: str, node: str) -> bool:
    """Return whether a pattern matches the name of a node, or of a pair of nodes, with or without
    the domains."""
    short = ":".join(name.partition(".")[0] for name in node.split(":"))
    return matches(pattern, node) or matches(pattern, short)


def relevant(waivers: Iterable[Waiver], subject: Subject, result: str) -> list[Waiver]:
    """Return the waivers, also expired ones, for a result of a test case or figure."""
    return [w for w in waivers if result in w.match.results and applies_to(w.match, subject)]


def covering(
    waivers: Iterable[Waiver], subject: Subject, result: str, day: datetime.date | None = None
) -> Waiver | None:
    """Return the first waiver in force on a day, by default today, that covers a result, if any."""
    return next((w for w in relevant(waivers, subject, result) if not w.expired(day)), None)


def exceeded(waivers: Iterable[Waiver], subject: Subject, result: str) -> list[Waiver]:
    """Return the waivers in force that would cover a result if its loss were smaller."""
    known = relevant(waivers, replace(subject, loss=None), result)
    return [w for w in known if not w.expired() and not applies_to(w.match, subject)]


def expired(waivers: Iterable[Waiver], subject: Subject, result: str) -> list[Waiver]:
    """Return the expired waivers for a result."""
    return [waiver for waiver in relevant(waivers, subject, result) if waiver.expired()]


def faults_of(
    waivers: Iterable[Waiver],
    path: Path,
    systems: dict[str, dict[str, Any]],
    metrics: set[str] | None,
) -> Iterator[str]:
    """Yield a message for each waiver that has expired or matches nothing that exists.

    :arg path: the file of the waivers.
    :arg systems: name -> content of the system's file.
    :arg metrics: all that a figure may have; ``None`` if that is not known yet.
    """
    for waiver in waivers:
        where = f"{path}: {waiver.id}"
        match = waiver.match
        if waiver.expired():
            message = f"{where}: expired waiver {waiver}: give it a new date, or remove it"
            yield with_code(message, "waiver.expired")
        contents = [content for name, content in systems.items() if matches(match.system, name)]
        names = {
            "system": list(systems),
            "partition": [p["name"] for c in contents for p in c["systems"][0]["partitions"]],
            "environment": [e["name"] for c in contents for e in c.get("environments", [])],
        }
        if metrics is not None:
            names["metric"] = sorted(metrics)
        for key, known in names.items():
            pattern = getattr(match, key)
            if not any(matches(pattern, name) for name in known):
                yield _no_name(path, waiver, key, known)
                break
        literal = match.placement and not {"*", "?"} & {*match.placement}
        if literal and not placement.exists(match.placement):
            available = placement.suggestion(match.placement)
            message = f"{where}: match.placement: no placement {match.placement!r}; {available}"
            yield with_code(message, "waiver.matches-nothing")


def _no_name(path: Path, waiver: Waiver, key: str, known: list[str]) -> str:
    """Return the message for a name in a waiver that nothing has."""
    pattern = getattr(waiver.match, key)
    message = f"{path}: {waiver.id}: match.{key}: no {key} {pattern!r}; {suggest(pattern, known)}"
    return with_code(message, "waiver.matches-nothing")


def about_metrics(
    waivers: Iterable[Waiver], path: Path, system: str, metrics: list[str]
) -> Iterator[str]:
    """Yield a message for each waiver of a system whose metric no figure has.

    :arg metrics: all that a figure of a loaded check may have.
    """
    for waiver in waivers:
        match = waiver.match
        if matches(match.system, system) and not any(matches(match.metric, m) for m in metrics):
            yield _no_name(path, waiver, "metric", metrics)


def about_no_case(waivers: Iterable[Waiver], path: Path, cases: Iterable[str]) -> Iterator[str]:
    """Yield a message for each waiver of a system that matches none of its test cases.

    :arg cases: names in an inventory, all of one system.
    """
    subjects = []
    for case in cases:
        check, _, where = case.rpartition(" @")
        system, _, rest = where.partition(":")
        partition, _, environment = rest.partition("+")
        subjects.append(Subject(system, partition, environment, check))
    for waiver in waivers:
        match = waiver.match
        # A case's name does not contain where it runs and what it measures.
        blank = {"metric": "", "size": None, "placement": "", "location": "", "node": "",
                 "max_loss": None}  # fmt: skip
        known = match.model_copy(update=blank)
        of_system = any(matches(match.system, subject.system) for subject in subjects)
        if of_system and not any(applies_to(known, subject) for subject in subjects):
            message = (
                f"{path}: {waiver.id}: match: matches no test case of {subjects[0].system}: "
                f"correct it, or remove it"
            )
            yield with_code(message, "waiver.matches-nothing")
