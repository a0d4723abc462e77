"""The input of screening: values of peers, from the history or a CSV file, and the switches."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.analysis.screen.detection import MEMORY
from plumbline.analysis.screen.pair_fit import PARTNERS
from plumbline.core import csvfile, paths
from plumbline.core.errors import UnreadableFile, WrongFile
from plumbline.core.text import natural
from plumbline.core.yamlfile import read_yaml
from plumbline.history.series import Key, Series

#: Hours within which sessions belong to one night, such as a retest.
NIGHT_HOURS = 12

#: Of the nights before the last :data:`MEMORY`, so many of the first are used, and of the others so
#: many for each doubling of their age, or a few more: 22 in a year, with which screening takes a
#: third longer. The first ones show what a node was like that has been slow nearly as long as the
#: history.
_FIRST, _EACH = 8, 4

#: Samples whose median does not follow a single outlier.
STEADY = 3

#: Ends of the labels of pairs.
_WITHIN, _BETWEEN = " within racks", " between racks"

_Key = tuple[str, ...]
_FLAGS = {"0", "1", "yes", "no", "true", "false"}


@dataclass
class Group:
    """Values of peers: of one partition, check, figure and placement.

    :ivar label: what was measured.
    :ivar better: ``higher`` or ``lower``.
    :ivar values: (night, unit) -> measured values in their order. A unit is a node ``(node,)``, a
        GPU ``(node, gpu)``, or, in ``pairs``, two nodes.
    :ivar across: of pairs, how many of them shared an uplink between racks; 0 within a rack. Empty
        if that is not known.
    :ivar within: of pairs between racks, those within racks of the same figure.
    :ivar steady: values that are the median of three samples or more: no single measurement.
    :ivar unit: of the values, and ``system``; not known of a file.
    """

    label: str
    better: str
    values: dict[tuple[str, tuple[str, ...]], list[float]] = field(default_factory=dict)
    pairs: dict[tuple[str, tuple[str, ...]], list[float]] = field(default_factory=dict)
    across: dict[tuple[str, tuple[str, ...]], int] = field(default_factory=dict)
    steady: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    within: Group | None = None
    unit: str = ""
    system: str = ""

    @property
    def units(self) -> list[tuple[str, ...]]:
        """The nodes or GPUs that were ever measured by themselves, sorted."""
        return sorted({unit for _, unit in self.values}, key=lambda unit: [*map(natural, unit)])


def of_file(path: Path) -> tuple[list[Group], dict[str, str]]:
    """Return the values of a CSV file, and the switches of its nodes.

    Columns: ``night, node, value, better``; for GPUs also ``gpu``; for pairs ``a`` and ``b``
    instead of ``node``; optionally ``switch``, or ``switch_a`` and ``switch_b``; for several
    figures ``series``. Several rows of one night and node are repeats. A ``retest`` column has a
    second value, or ``yes`` for a row that is a repeat. A row without a value is skipped.

    :raises Fault: if it cannot be read, lacks a column, or has a wrong value.
    """
    rows = csvfile.read(path, _missing, "night, node (or a and b), value and better")
    retests = {row.get("retest", "").lower() for _, row in rows}
    reader = _Reader(retest_has_values=not retests <= _FLAGS | {""})
    csvfile.for_each_line(path, rows, reader.add)
    groups = [group for group, _ in reader.groups.values() if group.values or group.pairs]
    return groups, reader.switches


def _missing(columns: list[str]) -> list[str]:
    missing = [name for name in ("night", "value", "better") if name not in columns]
    has_nodes = "node" in columns or {"a", "b"} <= {*columns}
    return missing if has_nodes else [*missing, "node (or a and b)"]


@dataclass
class _Reader:
    """Collects the rows of a file.

    :ivar retest_has_values: whether the column ``retest`` has values, and not flags.
    :ivar groups: by series, each with its first line.
    :ivar nights: whether nights are numbers or dates, and the line of the first one.
    """

    retest_has_values: bool
    groups: dict[str, tuple[Group, int]] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    nights: tuple[type, int] | None = None

    def add(self, line: int, row: dict[str, str]) -> None:
        """Add a row.

        :raises ValueError: if it is wrong.
        """
        night = self._night(line, row["night"])
        better, series = row["better"], row.get("series", "")
        if better not in ("higher", "lower"):
            raise ValueError(f"better {better!r}: write higher or lower")
        group, first = self.groups.setdefault(series, (Group(series, better), line))
        if group.better != better:
            raise ValueError(
                f"better {better!r}, but {group.better!r} in line {first}: write the same, or add "
                f"a column series with the name of each row's figure"
            )
        nodes = self._nodes(row)
        of, unit = group.pairs, nodes
        if len(nodes) == 1:
            of, unit = group.values, (*nodes, *filter(None, [row.get("gpu")]))
        texts = {"value": row["value"], "retest": ""}
        if self.retest_has_values:
            texts["retest"] = row["retest"]
        for column, text in texts.items():
            value = csvfile.parse_value(column, text)
            if not math.isnan(value):
                of.setdefault((night, unit), []).append(value)

    def _night(self, line: int, text: str) -> str:
        night = csvfile.parse_night(text)
        kind, first = self.nights = self.nights or (type(night), line)
        if not isinstance(night, kind):
            other = "number" if kind is int else "date"
            raise ValueError(f"night {night}, but line {first} has a {other}: use one of them")
        if isinstance(night, int) and night < 0:
            raise ValueError(f"night {night}: number nights from 0 on")
        return str(night)

    def _nodes(self, row: dict[str, str]) -> tuple[str, ...]:
        names: tuple[str, ...] = (
            (row["a"], row["b"]) if row.get("a") else tuple(row.get("node", "").split(":"))
        )
        columns = ["switch"] if len(names) == 1 else ["switch_a", "switch_b"]
        if not all(names) or len({*names}) != len(columns):
            raise ValueError(f"{':'.join(names)!r} is neither a node nor a pair of nodes")
        for node, column in zip(names, columns, strict=True):
            if row.get(column):
                self.switches[node] = row[column]
        return tuple(sorted(names, key=natural))


def chosen(units: Mapping[str, Iterable[int]]) -> set[str]:
    """Return the sessions to use: those of the last :data:`MEMORY` nights, and of some before them,
    the fewer the older. These show what a node was like that has been slow for longer.

    :arg units: of each session, numbers of the nodes that it measured.
    """
    night_of = nights(units)
    measured: dict[str, set[int]] = collections.defaultdict(set)
    for session, night in night_of.items():
        measured[night].update(units[session])
    ordered = [*measured]
    blocks: dict[tuple[int, int], list[str]] = collections.defaultdict(list)
    for place, night in enumerate(ordered[:-MEMORY]):
        # Counted from the first night, so that the next nights choose the same.
        length = 1 if place < _FIRST else 1 << int(math.log2((len(ordered) - place) / _EACH))
        blocks[length, place // length].append(night)
    kept = {*ordered[-MEMORY:]}
    for block in blocks.values():
        missing = set[int]().union(*(measured[night] for night in block))
        # A sweep of a part of the nodes each night needs several.
        half = len(missing) // 2
        while len(missing) > half:
            best = max(block, key=lambda night: len(measured[night] & missing))
            kept.add(best)
            missing -= measured[best]
    return {session for session, night in night_of.items() if night in kept}


def of_series(found: Iterable[Series], sessions: Collection[str] | None = None) -> Iterator[Group]:
    """Yield the groups of peers of a history, figure by figure, as they need much memory.

    Of the sizes that a figure had on its last night, the one most sensitive to a slow node is used:
    the smallest of a latency, the largest of a bandwidth.

    :arg sessions: those to use; all if ``None``.
    """
    found = [series for series in found if series.better != "neither"]
    night_of = nights_of(found)
    by_figure: dict[_Key, list[Series]] = collections.defaultdict(list)
    for series in found:
        key = series.key
        by_figure[(key.system, key.partition, key.environment, key.check, key.metric, key.placement,
                   key.conditions, series.better)].append(series)  # fmt: skip
    if sessions is not None:
        night_of = {name: night for name, night in night_of.items() if name in sessions}
    for figure, listed in by_figure.items():
        size = _size_of(listed, night_of)
        groups: dict[_Key, Group] = {}
        for series in listed:
            if series.key.size == size:
                _add(groups, figure, series, night_of)
        for of, group in groups.items():
            if of[-1] == _BETWEEN:
                group.within = groups.get((*of[:-1], _WITHIN))
        yield from groups.values()


def _size_of(listed: list[Series], night_of: dict[str, str]) -> int:
    """Return the size of a figure that is screened. One that is no longer measured would never be
    judged again."""
    last: dict[int, str] = {}
    for series in listed:
        measured = (night_of.get(session, "") for session in series.sessions.tolist())
        size = series.key.size
        last[size] = max(last.get(size, ""), max(measured, default=""))
    newest = max(last.values())
    sizes = [size for size, night in last.items() if night == newest]
    return min(sizes) if listed[0].better == "lower" else max(sizes)


def label_of(key: Key) -> str:
    """Return what a figure is called in messages and in the evidence of flags: the same for all of
    its nodes, GPUs and pairs."""
    what = [
        key.metric,
        f"of {key.size} B" if key.size >= 0 else "",
        f"at {location}" if (location := _place(key)) else "",
    ]
    about = f"{key.system}:{key.partition}+{key.environment} {key.check} {key.placement}"
    return f"{about} {' '.join(filter(None, what))}"


def is_of(evidence: str, key: Key) -> bool:
    """Return whether a line of the evidence of a flag is of a figure."""
    return evidence.removesuffix(_WITHIN).removesuffix(_BETWEEN) == label_of(key)


def _place(key: Key) -> str:
    """Return the location of a figure, empty if that is the unit: a GPU, or a pair of nodes."""
    is_unit = key.location.count(":") == 1 or re.fullmatch(r"gpu\d+", key.location)
    return "" if is_unit else key.location


def nodes_of(found: Iterable[Series]) -> set[str]:
    """Return the nodes that were measured by themselves or in pairs."""
    nodes = set()
    for series in found:
        nodes |= {series.key.node} if series.key.node else {*series.nodes.tolist()}
        if series.key.location.count(":") == 1:
            nodes |= {*series.key.location.split(":")}
    return {node for node in nodes if node and "," not in node}


def joined(groups: Iterable[Group]) -> list[Group]:
    """Return the groups, with pairs within and between racks as one where no rack has enough nodes
    for its own pairs to distinguish them. How many shared an uplink is still taken into account."""
    found = [*groups]
    for group in list(found):
        within = group.within
        if within is None or _partners(within) >= PARTNERS:
            continue
        found = [one for one in found if one is not group and one is not within]
        found.append(replace(
            within, label=within.label.removesuffix(_WITHIN), pairs=within.pairs | group.pairs,
            across=group.across, steady=within.steady | group.steady,
        ))  # fmt: skip
    return found


def _partners(group: Group) -> int:
    """Return with how many nodes a node was measured, at most."""
    partners = collections.defaultdict(set)
    for _, (one, other) in group.pairs:
        partners[one].add(other)
        partners[other].add(one)
    return max(map(len, partners.values()), default=0)


def _add(groups: dict[_Key, Group], figure: _Key, series: Series, night_of: dict[str, str]) -> None:
    key = series.key
    label, place = label_of(key), _place(key)

    def group(where: str = "") -> Group:
        name = (*figure, place, where)
        new = Group(label + where, series.better, unit=series.unit, system=key.system)
        return groups.setdefault(name, new)

    if key.location.count(":") == 1:
        _add_pair(group, series, night_of)
        return
    values = group().values
    names = [key.node] * len(series.values) if key.node else series.nodes.tolist()
    gpu = [key.location] if key.location and not place else []
    units = {name: (name, *gpu) for name in {*names} if name}
    for session, name, value in zip(
        series.sessions.tolist(), names, series.values.tolist(), strict=True
    ):
        if value > 0 and session in night_of and name and "," not in name:
            values.setdefault((night_of[session], units[name]), []).append(value)


def _add_pair(group: Callable[[str], Group], series: Series, night_of: dict[str, str]) -> None:
    """Add the values of a pair of nodes.

    :arg group: returns that of pairs within racks, or between them.
    """
    pair = tuple(sorted(series.key.location.split(":"), key=natural))
    numbers = [-1] * len(series.values) if series.across is None else series.across.tolist()
    taken = [1] * len(series.values) if series.taken is None else series.taken.tolist()
    for session, value, across, samples in zip(
        series.sessions.tolist(), series.values.tolist(), numbers, taken, strict=True
    ):
        if session in night_of and value > 0:
            # Pairs within racks and between racks are no peers: uplinks may carry less.
            peers = group("" if across < 0 else _BETWEEN if across else _WITHIN)
            at = night_of[session], pair
            peers.pairs.setdefault(at, []).append(value)
            if across > 0:
                peers.across[at] = across
            if samples >= STEADY:
                peers.steady.add(at)


def nights(sessions: Iterable[str]) -> dict[str, str]:
    """Return the first session of each session's night: the one that began at most twelve hours
    before it."""
    found: dict[str, str] = {}
    first, began = "", None
    for session in sorted(set(sessions)):
        time = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)", session)
        start = np.datetime64("{}-{}-{}T{}:{}:{}".format(*time.groups())) if time else None
        if began is None or start is None or start - began > np.timedelta64(NIGHT_HOURS, "h"):
            first, began = session, start
        found[session] = first
    return found


def nights_of(found: Iterable[Series]) -> dict[str, str]:
    """Return the night of each session with a figure that is screened: those that are better
    neither higher nor lower are not, and begin no night."""
    return nights(session for series in found if series.better != "neither"
                  for session in series.sessions.tolist())  # fmt: skip


def of_topology(path: Path) -> dict[str, str]:
    """Return the leaf switch of each node, from Slurm's ``topology.conf``.

    :raises Fault: if it cannot be read, or has no node.
    """
    # Imported here: ReFrame is slow to load.
    from reframe.utility import nodelist_expand

    try:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError) as err:
        why = err.strerror if isinstance(err, OSError) else f"byte {err.start} is not UTF-8"
        raise UnreadableFile(f"{path}: {why}: pass Slurm's topology.conf") from None
    found: dict[str, str] = {}
    for line in text.splitlines():
        found_in = re.findall(r"(\w+)=(\S+)", line.partition("#")[0])
        fields = {key.lower(): value for key, value in found_in}
        if "switchname" in fields and "nodes" in fields:
            try:
                nodes = nodelist_expand(fields["nodes"])
            except ValueError:
                raise WrongFile(
                    f"{path}: Nodes={fields['nodes']} is not a list of nodes such as n[1-4,7]"
                ) from None
            found |= dict.fromkeys(nodes, fields["switchname"])
    if not found:
        raise WrongFile(f"{path}: no line `SwitchName=... Nodes=...`: pass Slurm's topology.conf")
    return found


def extras_of(system: str) -> dict[str, dict[str, Any]]:
    """Return the ``extras`` of each partition in a system's file, none without a file."""
    path = paths.systems().find(f"{system}.yaml")
    listed = read_yaml(path)["systems"][0].get("partitions", []) if path.exists() else []
    return {partition["name"]: partition.get("extras", {}) for partition in listed}


def by_name(systems: Iterable[str], nodes: Iterable[str]) -> dict[str, str]:
    """Return the rack of each node, by the ``rack_pattern`` of the systems' partitions.

    It is used as the switch, as a rack usually has one at its top.
    """
    patterns = [
        re.compile(pattern)
        for system in sorted(set(systems))
        for extras in extras_of(system).values()
        if (pattern := extras.get("rack_pattern"))
    ]
    found = {}
    for node in nodes:
        match = next((m for pattern in patterns if (m := pattern.match(node))), None)
        if match:
            found[node] = match[1]
    return found
