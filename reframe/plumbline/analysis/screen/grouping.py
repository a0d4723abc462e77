"""What screening compares: values of peers, from the history or from a CSV file, and which switch a
node is on."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from plumbline.analysis.screen.peers import MEMORY
from plumbline.core import csvfile, paths
from plumbline.core.errors import Fault
from plumbline.history.series import Series
from plumbline.reference.tables import read_yaml

#: Hours within which sessions are of one night: a retest belongs to the session it follows.
NIGHT_HOURS = 12

_FLAGS = {"0", "1", "yes", "no", "true", "false"}


@dataclass
class Group:
    """Values of peers that may be compared: of one partition, check, figure and placement.

    :ivar label: what was measured.
    :ivar better: ``higher`` or ``lower``.
    :ivar values: (night, unit) -> measured values in their order. A unit is a node ``(node,)``, a
        GPU ``(node, gpu)``, or, in ``pairs``, two nodes.
    """

    label: str
    better: str
    values: dict[tuple[str, tuple[str, ...]], list[float]] = field(default_factory=dict)
    pairs: dict[tuple[str, tuple[str, ...]], list[float]] = field(default_factory=dict)

    @property
    def widest(self) -> int:
        """Number of units that were ever measured, or of pairs if these are more."""
        return max(len({unit for _, unit in part}) for part in (self.values, self.pairs))


def of_file(path: Path) -> tuple[list[Group], dict[str, str]]:
    """The values of a CSV file, and the switches that it names.

    Columns: ``night, node, value, better``; for GPUs also ``gpu``; for pairs ``a`` and ``b`` in
    place of ``node``; where switches are known ``switch``, or ``switch_a`` and ``switch_b``; where
    there are several figures ``series``. Several rows of one night and node are repeats; a
    ``retest`` column holds another value, or says ``yes`` of a row that is one. A row without a
    value is left out.

    :raises Fault: if it cannot be read, lacks a column, or holds what is no value.
    """
    rows = csvfile.read(path, _missing, "night, node (or a and b), value and better")
    retests = {row.get("retest", "").lower() for _, row in rows}
    given = _Given(values_of_retest=not retests <= _FLAGS | {""})
    csvfile.each(path, rows, given.add)
    groups = [group for group, _ in given.groups.values() if group.values or group.pairs]
    return groups, given.switches


def _missing(columns: list[str]) -> list[str]:
    missing = [name for name in ("night", "value", "better") if name not in columns]
    there = "node" in columns or {"a", "b"} <= {*columns}
    return missing if there else [*missing, "node (or a and b)"]


@dataclass
class _Given:
    """What a file's rows say.

    :ivar values_of_retest: whether the column ``retest`` holds values.
    :ivar groups: by series, each with its first line.
    :ivar nights: the kind of night that the file has, and the first line.
    """

    values_of_retest: bool
    groups: dict[str, tuple[Group, int]] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    nights: tuple[type, int] | None = None

    def add(self, line: int, row: dict[str, str]) -> None:
        """Takes a row.

        :raises ValueError: if something of it is wrong.
        """
        night = self._night(line, row["night"])
        better, series = row["better"], row.get("series", "")
        if better not in ("higher", "lower"):
            raise ValueError(f"better {better!r}: say higher or lower")
        group, first = self.groups.setdefault(series, (Group(series, better), line))
        if group.better != better:
            raise ValueError(
                f"better {better!r}, but line {first} says {group.better!r}: say the same, or tell "
                f"what was measured in a column series"
            )
        nodes = self._nodes(row)
        if len(nodes) == 2:
            of, unit = group.pairs, nodes
        else:
            of, unit = group.values, (*nodes, *filter(None, [row.get("gpu")]))
        texts = {"value": row["value"], "retest": ""}
        if self.values_of_retest:
            texts["retest"] = row["retest"]
        for column, text in texts.items():
            value = csvfile.value(column, text)
            if not math.isnan(value):
                of.setdefault((night, unit), []).append(value)

    def _night(self, line: int, text: str) -> str:
        night = csvfile.night(text)
        kind, first = self.nights = self.nights or (type(night), line)
        if not isinstance(night, kind):
            raise ValueError(f"night {night}, but line {first} has another kind: numbers or dates")
        if isinstance(night, int) and night < 0:
            raise ValueError(f"night {night}: count nights from 0 on")
        return str(night)

    def _nodes(self, row: dict[str, str]) -> tuple[str, ...]:
        names = (row["a"], row["b"]) if row.get("a") else tuple(row.get("node", "").split(":"))
        columns = ["switch"] if len(names) == 1 else ["switch_a", "switch_b"]
        if not all(names) or len({*names}) != len(columns):
            raise ValueError(f"{':'.join(names)!r} names no node, and no pair of two")
        for node, column in zip(names, columns, strict=True):
            if row.get(column):
                self.switches[node] = row[column]
        return tuple(sorted(names, key=natural))


def of_series(found: Iterable[Series], last: str = "") -> list[Group]:
    """The groups of peers of a history. Of a figure's sizes the one counts that says most of a
    slow node: the smallest of a latency, the largest of a bandwidth.

    :arg last: the newest session to look at; all where it is empty. As many nights before it are
        taken as a judgement looks back.
    """
    found = [series for series in found if series.better != "neither"]
    by_figure: dict[tuple, list[Series]] = collections.defaultdict(list)
    for series in found:
        key = series.key
        by_figure[(key.system, key.partition, key.environment, key.check, key.metric, key.placement,
                   key.conditions, series.better)].append(series)  # fmt: skip
    night_of = nights([session for series in found for session in series.sessions.tolist()])
    latest = sorted({night for session, night in night_of.items() if not last or session <= last})
    kept = {*latest[-MEMORY:]}
    night_of = {session: night for session, night in night_of.items()
                if night in kept and (not last or session <= last)}  # fmt: skip
    groups: dict[tuple, Group] = {}
    for figure, listed in by_figure.items():
        sizes = {series.key.size for series in listed}
        size = min(sizes) if figure[-1] == "lower" else max(sizes)
        for series in listed:
            if series.key.size == size:
                _add(groups, figure, series, night_of)
    return [group for group in groups.values() if group.values or group.pairs]


def _add(groups: dict, figure: tuple, series: Series, night_of: dict[str, str]) -> None:
    key = series.key
    pair = tuple(key.at.split(":")) if key.at.count(":") == 1 else ()
    gpu = re.fullmatch(r"gpu\d+", key.at)
    at = "" if pair or gpu else key.at
    system, partition, environment, check, metric, placement, *_ = figure
    told = [metric, f"of {key.size} B" if key.size >= 0 else "", f"at {at}" if at else ""]
    label = f"{system}:{partition}+{environment} {check} {placement} {' '.join(filter(None, told))}"
    for session, nodes, value in zip(series.sessions.tolist(), series.nodes.tolist(),
                                     series.values.tolist(), strict=True):  # fmt: skip
        if session not in night_of or not value > 0:
            continue
        node = key.node or ("" if "," in nodes else nodes)
        group = groups.setdefault((*figure, at), Group(label, series.better))
        if pair:
            unit = tuple(sorted(pair, key=natural))
            group.pairs.setdefault((night_of[session], unit), []).append(value)
        elif node:
            unit = (node, gpu[0]) if gpu else (node,)
            group.values.setdefault((night_of[session], unit), []).append(value)


def nights(sessions: Iterable[str]) -> dict[str, str]:
    """Session -> the first session of its night: those that start within twelve hours of it belong
    to it, such as a retest."""
    found: dict[str, str] = {}
    first, began = "", None
    for session in sorted(set(sessions)):
        told = re.match(r"\d{8}T\d{6}", session)
        start = np.datetime64(
            f"{session[:4]}-{session[4:6]}-{session[6:8]}T"
            f"{session[9:11]}:{session[11:13]}:{session[13:15]}"
        ) if told else None  # fmt: skip
        if began is None or start is None or start - began > np.timedelta64(NIGHT_HOURS, "h"):
            first, began = session, start
        found[session] = first
    return found


def natural(text: str) -> list:
    """Sorts n2 before n10, and dates and numbers as such."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part)
            for part in re.split(r"(\d+)", text) if part]  # fmt: skip


def of_topology(path: Path) -> dict[str, str]:
    """Node -> leaf switch, from Slurm's ``topology.conf``.

    :raises Fault: if it cannot be read, or names no node.
    """
    # Not above: ReFrame takes a while to load.
    from reframe.utility import nodelist_expand

    try:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    except OSError as err:
        raise Fault(
            f"{path}: {err.strerror}: name Slurm's topology.conf", code="input.unreadable-file"
        ) from None
    except UnicodeDecodeError as err:
        raise Fault(
            f"{path}: byte {err.start} is no text: name Slurm's topology.conf",
            code="input.unreadable-file",
        ) from None
    found: dict[str, str] = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line.partition("#")[0]))
        fields = {key.lower(): value for key, value in fields.items()}
        if "switchname" in fields and "nodes" in fields:
            try:
                nodes = nodelist_expand(fields["nodes"])
            except ValueError:
                raise Fault(
                    f"{path}: {fields['nodes']!r} is no list of nodes", code="input.wrong-file"
                ) from None
            found |= dict.fromkeys(nodes, fields["switchname"])
    if not found:
        raise Fault(
            f"{path}: no line `SwitchName=... Nodes=...` there, as topology.conf has them",
            code="input.wrong-file",
        )
    return found


def by_name(systems: Iterable[str], nodes: Iterable[str]) -> dict[str, str]:
    """Node -> rack, from the names of the nodes by the ``rack_pattern`` of the systems' partitions:
    the switch at the top of the rack, where nothing better is known."""
    patterns = []
    for system in sorted(set(systems)):
        path = paths.systems() / f"{system}.yaml"
        if path.exists():
            for partition in read_yaml(path)["systems"][0].get("partitions", []):
                if pattern := partition.get("extras", {}).get("rack_pattern"):
                    patterns.append(re.compile(pattern))
    found = {}
    for node in nodes:
        match = next((m for pattern in patterns if (m := pattern.match(node))), None)
        if match:
            found[node] = match[1]
    return found
