"""The list of faults: each is injected for real into a machine that was measured healthy before,
and the commands of a night must find it by name, and nothing else."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ground import Ground, Machine, brought_up, missing, page
from ground.site import Site

#: Healthy nights before each fault, and nights with it at most.
BEFORE, NIGHTS = 2, 2

#: Asks for healthy nights alone.
HEALTHY = "healthy"

#: Healthy nights after which a baseline is made: those that follow are under strict rules.
LEARNED = 3

#: Fields of a machine whose uplinks carry two fifths of what the nodes of a rack can send.
OVERSUBSCRIBED = {"uplink": 100}

#: The node to which something happens.
NODE = "r1n3"


@dataclass
class Found:
    """What a command said of a fault.

    :ivar night: the first night on which it was found, 0 if on none.
    :ivar named: what was named, kind and name.
    :ivar false: what else was named.
    :ivar size: the loss that was reported, as a fraction.
    :ivar code: exit code of the command on that night, or on the last.
    :ivar said: reason codes of the records that did not pass.
    """

    fault: str
    command: str
    injected: float | None
    night: int = 0
    named: str = ""
    size: float | None = None
    false: tuple[str, ...] = ()
    code: int = 0
    said: tuple[str, ...] = ()


#: Something that is done to a node of a machine.
Action = Callable[[Ground, str], object]


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    :ivar injected: the loss, as a fraction of the healthy rate, where it is one.
    :ivar measure: which command of a night is to find it: ``pairs`` or ``nodes``, then ``screen``;
        or ``hosts``: the pairs, then ``compare`` by the facts of the hosts.
    :ivar node: where it happens.
    :ivar expected: what may be named for it, as ``node r1n3``.
    :ivar machine: fields of the machine that differ from machine.yaml.
    :ivar everywhere: whether messages must name all nodes, and not this one alone.
    """

    name: str
    inject: Action
    heal: Action
    measure: str
    injected: float | None = None
    node: str = NODE
    expected: tuple[str, ...] = (f"node {NODE}",)
    machine: dict[str, float] = field(default_factory=dict)
    everywhere: bool = False

    def at(self, node: str) -> Fault:
        """The same at another node."""
        name, *expected = (text.replace(self.node, node) for text in (self.name, *self.expected))
        return replace(self, name=name, node=node, expected=tuple(expected))

    @property
    def sessions(self) -> str:
        """What a night measures to find it: ``pairs`` or ``nodes``."""
        return "nodes" if self.measure == "nodes" else "pairs"


def act(method: Callable[..., object], *arguments: object) -> Action:
    """A method of the machine, with what it takes behind the node."""
    return lambda ground, node: method(ground, node, *arguments)


def link(percent: float, name: str = NODE, **machine: float) -> Fault:
    """A link at a part of its rate, of a node or of a rack to the spine."""
    kind, expected = "link", (f"node {name}",)
    if name != NODE:
        # Two racks do not show which of their uplinks it is.
        kind, expected = "uplink", ("link r1:r2",)
    where = ", uplinks oversubscribed" if machine else ""
    return Fault(
        f"{kind} of {name} at {percent:g} %{where}",
        act(Ground.rate, percent),
        act(Ground.rate, 100),
        "pairs",
        round(1 - percent / 100, 3),
        name,
        expected,
        machine,
    )


#: What is named of a node with a setting that differs from its peers', and its speed where it
#: suffers.
SETTING = (f"node {NODE}", f"setting {NODE}")

#: A link that loses packets: what exceeds its rate does not wait but is dropped.
LOSSY = "burst 3kb limit 3kb"


def without_management(ground: Ground, node: str) -> None:
    """Unplugs a node's cable to the management network."""
    ground.cable(node, False, "m")
    ground.until_down(node)


def healthy_mtu(ground: Ground, node: str) -> None:
    """Sets a node's MTU to its peers'."""
    ground.mtu(node, ground.machine.mtu)


FAULTS = (
    *map(link, (95, 90, 80, 50)),
    link(70, "r1"),
    link(90, **OVERSUBSCRIBED),
    link(70, "r1", **OVERSUBSCRIBED),
    *(
        Fault(f"wrong MTU, {size}", act(Ground.mtu, size), healthy_mtu, "pairs", expected=SETTING)
        for size in (576, 1400)
    ),
    Fault("packets lost on a node's link", act(Ground.rate, 100, LOSSY), act(Ground.rate, 100),
          "pairs"),
    Fault("fabric's cable unplugged", act(Ground.cable, False), act(Ground.cable, True), "pairs"),
    Fault("program that hangs as it starts", act(Ground.hang, "IMB-MPI1"), Ground.idle, "pairs"),
    Fault("another node under the same name", Ground.swap, act(Ground.swap, 0), "hosts"),
    Fault("management network down in a session", lambda ground, _: ground.lose_management(),
          lambda ground, _: ground.regain_management(), "pairs", everywhere=True),
    Fault("scratch disk at 50 %", act(Ground.disk, 50), act(Ground.disk, 100), "nodes", 0.5),
    Fault("scratch disk full", Ground.fill, Ground.empty, "nodes"),
    # Its quota differs too.
    Fault("CPUs at half by quota", act(Ground.cpu, 50), act(Ground.cpu, 100), "nodes", 0.5,
          expected=SETTING),
    Fault("process that keeps a core busy", Ground.busy, Ground.idle, "nodes"),
    Fault("management cable unplugged", without_management, act(Ground.cable, True, "m"), "nodes"),
    Fault("slurmd killed", Ground.kill_slurmd, Ground.kill_node, "nodes"),
    Fault("node without power", Ground.kill_node, lambda *_: None, "nodes"),
)  # fmt: skip


def night(site: Site, faults: Sequence[Fault], number: int, before: set[str]) -> list[Found]:
    """Measures one night with faults that one command is to find, and what was said of each.

    :arg before: what was flagged already.
    """
    by_nodes = faults[0].sessions == "nodes"
    done = site.nodes() if by_nodes else site.pairs(1000 + number)
    command = "sweep" if by_nodes else "run"
    code, flagged = site.screen()
    names = {name_of(entry): entry["size"] for entry in flagged}
    expected = {name for fault in faults for name in fault.expected}
    false = tuple(sorted(names.keys() - before - expected))
    said = tuple(sorted({r["code"] or r["result"] for r in bad_of(site)}))
    # What is not slow, the command that measures says, or no one does.
    output = (done.stdout + done.stderr).splitlines() if done.returncode else []
    blamed = {node for line in output for node in said_of(line, site)}
    everyone, struck = {*site.there.names}, {fault.node for fault in faults}
    told = []
    for fault in faults:
        found = Found(fault.name, f"{command}, screen", fault.injected, false=false, said=said)
        found.code = code
        known = [name for name in fault.expected if name in names]
        others = site.changed("address") if fault.measure == "hosts" else set()
        if known:
            found.night, found.named, found.size = number, known[0], names[known[0]]
        elif others:
            found.command, found.named = f"{command}, compare", " ".join(sorted(others))
            found.night = number if others == {fault.node} else 0
        elif blamed:
            found.command, found.code = command, done.returncode
            found.named = "all nodes" if blamed == everyone else " ".join(sorted(blamed))
            culprits = everyone if fault.everywhere else {fault.node}
            found.night = number if culprits <= blamed <= culprits | struck else 0
        told.append(found)
    return told


def bad_of(site: Site) -> list[dict]:
    """The records of tonight's cases that did not pass."""
    return [fields for fields in site.tonight() if fields["result"] not in ("pass", "skip")]


def name_of(entry: dict) -> str:
    """Kind and name of what ``plumbline screen`` flags: ``pair r1n1:r1n2``, ``setting r1n3``."""
    name = entry["node" if entry["kind"] == "setting" else entry["kind"]]
    return f"{entry['kind']} {name if isinstance(name, str) else ':'.join(name)}"


#: A line that reports what could not be measured, or not trusted.
REPORTED = re.compile(
    r"^(plumbline: )?(\w+: )?(error|invalid|failed|skipped|not reached|(not )?measured)\b"
)


def said_of(line: str, site: Site) -> set[str]:
    """The nodes that a line blames."""
    if not REPORTED.match(line):
        return set()
    blame = re.search(r"(\w+) is in all of them", line)
    return {blame[1]} if blame else {n for n in site.there.names if re.search(rf"\b{n}\b", line)}


def tried(site: Site, faults: Sequence[Fault], healthy: Path) -> list[Found]:
    """Injects faults at once, measures nights until all are found, and heals them. A node that does
    not answer is started again.

    :arg faults: different ones of different nodes, of which none hides another.
    """
    site.restore(healthy)
    before = {name_of(entry) for entry in site.screen()[1]}
    with contextlib.ExitStack() as healing:
        healing.callback(site.there.repair)
        for fault in faults:
            fault.inject(site.there, fault.node)
            healing.callback(fault.heal, site.there, fault.node)
        for number in range(1, NIGHTS + 1):
            found = night(site, faults, number, before)
            if all(each.night for each in found):
                break
            site.day_passes()
    return found


def healthy_nights(site: Site, count: int, measures: set[str], place: str) -> None:
    """Measures nights without a fault, and writes what was flagged or failed on each, which is
    false.

    :arg measures: ``pairs``, ``nodes`` or both.
    :arg place: what the machine is called in the file.
    """
    for number in range(1, count + 1):
        if number == LEARNED + 1:
            site.learn()
        done = []
        if "pairs" in measures:
            done.append(site.pairs(number))
        if "nodes" in measures:
            done.append(site.nodes())
        flagged = [*map(name_of, site.screen()[1])]
        flagged += [f"{r['check']}: {r['code']}" for r in bad_of(site)]
        flagged += [f"exit code {d.returncode}" for d in done if d.returncode and not flagged]
        with measured() as known:
            # Those of earlier calls count too.
            so_far = known.setdefault(place, {"nights": 0, "false": []})
            so_far["nights"] += 1
            so_far["strict"] = so_far.get("strict", 0) + site.strict
            so_far["false"] += flagged
        print(f"healthy night {number}, flagged: {flagged}", flush=True)
        for failed in done:
            if failed.returncode:
                print(failed.stdout + failed.stderr, flush=True)
        site.day_passes()


def main(wanted: str = "", nights: str = f"{BEFORE}") -> int:
    """Runs the list, or the faults whose names match, and writes what was measured.

    :arg wanted: pattern of names; ``healthy`` for nights without a fault alone.
    :arg nights: healthy nights before them.
    """
    if why := missing():
        print(f"plumbline: no proving ground: {why}", file=sys.stderr)
        return 2
    chosen = [fault for fault in FAULTS if re.search(wanted, fault.name)]
    for machine in ({}, OVERSUBSCRIBED):
        faults = [fault for fault in chosen if fault.machine == machine]
        if faults or wanted == HEALTHY:
            measured_on(machine, faults, int(nights))
    return 0


def measured_on(changes: dict[str, float], faults: list[Fault], nights: int) -> None:
    """Measures healthy nights and faults on one machine, and writes what was found.

    :arg changes: fields of the machine that differ from machine.yaml.
    """
    with tempfile.TemporaryDirectory(prefix="healthy-") as kept, brought_up(**changes) as there:
        site = Site(there.folder / "site", there)
        site.draft()
        with measured() as known:
            known["machine"] = asdict(Machine.declared())
            known |= {"before": BEFORE, "nights": NIGHTS}
        place = "oversubscribed" if changes else "healthy"
        measures = {fault.sessions for fault in faults}
        measures = measures or {"pairs", "nodes"}
        healthy_nights(site, nights, measures, place)
        healthy = Path(kept, "results")
        site.keep(healthy)
        # A fault fails what asserts something, and is to be found without that.
        site.strict = False
        for fault in faults:
            began = time.monotonic()
            (found,) = tried(site, [fault], healthy)
            with measured() as known:
                known["faults"][fault.name] = asdict(found)
            print(f"{time.monotonic() - began:.0f} s: {found}", flush=True)


@contextlib.contextmanager
def measured() -> Iterator[dict]:
    """What was measured, to be changed; it is written with its page. Faults are in the order of the
    list."""
    known = json.loads(page.MEASURED.read_text())
    yield known
    order = [fault.name for fault in FAULTS]
    known["faults"] = {name: known["faults"][name] for name in order if name in known["faults"]}
    page.MEASURED.write_text(json.dumps(known, indent=1) + "\n")
    page.write()


if __name__ == "__main__":
    # So that the machine is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(*sys.argv[1:]))
