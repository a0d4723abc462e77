"""Every system at the simulated facility, whose numbers come from the second transcription of the
papers: at the printed values and just beyond their bounds; for some systems, also just within the
bounds and with damaged outputs. ``make golden`` writes ``docs/coverage.md`` from what was asserted.

Each case with a reference is run, each check with each operation somewhere, and each value of each
other parameter of a benchmark at each place. ``test_golden.py`` compares the job scripts of all
cases."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import coverage_page
import foreign
import pytest
from foreign import Session
from plumbline.core import paths
from plumbline.parse import Figure
from plumbline.reference import lookup
from reframe.utility import nodelist_abbrev

COVERAGE = foreign.ROOT / "docs" / "coverage.md"

#: One run for each verdict, three where a distribution is judged.
FEW = ["-S", "num_warmups=0", "-S", "num_samples=1", "-S", "gpcnet_load.num_samples=3"]

#: Reasons for which a case may be skipped at the facility.
MAY_SKIP = {
    "scratch.none",
    "placement.one-rack",
    "binding.launcher-unknown",
    "binding.not-expressible",
    "binding.scheduler-unknown",
}

#: Benchmark -> pattern of the lines of its output that hold the figures with a reference.
FIGURES = {
    "babelstream": r"^(Copy|Mul|Add|Triad|Dot) ",
    "commscope": r'"(real_time|bytes_per_second)"',
    "gpcnet": r"RR Two-sided|Multiple Allreduce",
    "imb": r"^ +\d+ +\d+ +\d+\.",
    "ior": r'"bw|bwMaxMIB',
    "mdtest": r"^ *File creation",
    "osu": r"^ *\d+(\.\d+)? *",
}

#: What is done to an output, after which no figure with a reference can be trusted; ``inside``
#: leaves it whole, with values just within their bounds.
DAMAGES = {
    "inside": None,
    "garbled": lambda benchmark: {"kind": "garble", "match": FIGURES[benchmark]},
    "missing": lambda benchmark: {"kind": "missing", "line": FIGURES[benchmark]},
    "truncated": lambda benchmark: {"kind": "truncate"},
}

#: Parameters of a case that change what its program does, and neither where nor on what.
OPERATION = {"test", "operation", "access", "pattern", "model"}

#: What shows, beside other cases, what a node's own memory answers.
OWN_MEMORY = {
    f"ior %file_system=burst-buffer %api={api} %access=file-per-process @summit:batch+xl-smpi"
    for api in ("mpiio", "posix")
}

#: Systems whose outputs are damaged: each benchmark has references on one of them.
DAMAGED = ["summit", "reedbush-u", "frontier", "manzano"]


@dataclass(frozen=True)
class Asserted:
    """A figure that a reference bounds: where it was measured, and its bounds.

    :ivar name: of the case in the system's inventory.
    """

    name: str
    case: str
    folder: str
    hash: str
    figure: Figure
    fom: dict

    def moved(self, beyond: bool) -> float:
        """The value just within its bound or just beyond it, by what the program can print."""
        lower = self.fom["upper"] is None
        bound = self.fom["lower"] if lower else self.fom["upper"]
        fom = references().fom(self.fom["benchmark"], self.figure.metric)
        step = max(0.6 * fom.resolution, 1e-3 * bound)
        return bound + step * (1 if beyond != lower else -1)


def references() -> lookup.References:
    return lookup.loaded(paths.ROOT / "reference")


def name_of(fields: dict) -> str:
    """The name of a record's case in an inventory."""
    place = f"{fields['system']}:{fields['partition']}+{fields['environment']}"
    return f"{fields['check']} @{place}"


def asserted(records: list[dict]) -> Iterator[Asserted]:
    """The figures of a session that a reference bounds."""
    for fields in records:
        for fom in fields["foms"]:
            if fom["verdict"] != "not-asserted" and fom["reference"]:
                yield Asserted(
                    name_of(fields),
                    fields["case"],
                    foreign.stage_of_record(fields),
                    fields["case"].split()[0],
                    Figure(fom["metric"], fom["size"], fom["location"]),
                    fom | {"benchmark": fields["benchmark"]},
                )


@dataclass(frozen=True)
class Sessions:
    """A system's sessions at the facility.

    :ivar printed: at the printed values.
    :ivar referenced: the figures in it with a reference.
    :ivar outside: the cases with a reference, just beyond their bounds.
    :ivar damaged: the same, one case after the other with the next of :data:`DAMAGES`.
    """

    printed: Session
    referenced: list[Asserted]
    outside: Session | None = None
    damaged: Session | None = None


def bounded(system: str, case: str) -> dict[str, str]:
    """Figure -> the row that bounds it, by the system's inventory. A ceiling alone is none, and OSU
    7 prints no latency of empty messages."""
    rows = references().tables.rows
    found = foreign.inventory(system)[case].items()
    measured = {
        row: figures for row, figures in found if rows[row.partition(" x")[0]].kind != "peak"
    }
    return {
        figure: row
        for row, figures in measured.items()
        for figure in figures
        if figure != "latency_0"
    }


def operation_of(case: str) -> str:
    """The check of a case with its operation."""
    name, *parameters = case.partition(" @")[0].split(" %")
    return " ".join([name, *(p for p in parameters if p.partition("=")[0] in OPERATION)])


def kinds_of(case: str) -> set[tuple[str, str, str]]:
    """What a case covers at its place: its benchmark with each parameter that is no operation,
    or with the check if it has none."""
    check, _, place = case.partition(" @")
    name, *parameters = check.split(" %")
    others = [p for p in parameters if p.partition("=")[0] not in OPERATION]
    return {(name.partition("_")[0], other, place) for other in others or [name]}


@functools.cache
def first_cases() -> set[tuple[str, str]]:
    """The first system, and its first case, of each check with each operation."""
    found: dict[str, tuple[str, str]] = {}
    for system in foreign.SYSTEMS:
        for case in foreign.inventory(system):
            found.setdefault(operation_of(case), (system, case))
    return {*found.values()}


def cases_of(system: str) -> list[str]:
    """The cases that are run: those with a reference, the first ones, :data:`OWN_MEMORY`, and
    others of which each covers what those before it do not."""
    found, met = [], set()
    cases = foreign.inventory(system)
    first = {case for where, case in first_cases() if where == system}
    first |= OWN_MEMORY & cases.keys()
    anyway = first | {case for case in cases if bounded(system, case)}
    for case in sorted(cases, key=lambda case: case not in anyway):
        if case in anyway or kinds_of(case) - met:
            found.append(case)
        met |= kinds_of(case)
    return found


def selecting(numbers: set[str]) -> list[str]:
    return [
        "--tag=.*",
        *FEW,
        *(word for number in sorted(numbers) for word in ("-n", f"/{number}")),
    ]


def damage_of(system: str, referenced: list[Asserted]) -> dict[str, str]:
    """Case -> its damage: by turns from case to case of a benchmark, and from system to system."""
    if system not in DAMAGED:
        return {}
    turns = itertools.islice(itertools.cycle(DAMAGES), DAMAGED.index(system), None)
    cases = dict.fromkeys(sorted((one.fom["benchmark"], one.case) for one in referenced))
    return {case: damage for (_, case), damage in zip(cases, turns, strict=False)}


def scaled(one: Asserted, beyond: bool) -> dict:
    """The fault that moves a figure just beyond its bound, or just within it."""
    value, factor = one.fom["value"], one.moved(beyond) / one.fom["value"]
    # What the program measures is a time, of which it makes the bandwidth.
    if one.fom["benchmark"] in ("commscope", "imb") and "bandwidth" in one.figure.metric:
        value, factor = (one.figure.size or 2**30) / value, 1 / factor
    return {"kind": "scale", "folder": one.folder, "near": value, "factor": factor}


def run_all(system: str, folder: Path) -> Sessions:
    foreign.prepare(system, folder)
    numbers = {foreign.hash_of(case) for case in cases_of(system)}
    printed = foreign.run(system, folder, *selecting(numbers), patience=1500)
    referenced = list(asserted(printed.records))
    if not referenced:
        return Sessions(printed, referenced)
    selected = selecting({one.hash for one in referenced})

    def run(faults: list[dict]) -> Session:
        return foreign.run(system, folder, *selected, patience=1500, fault=faults)

    outside = run([scaled(one, beyond=True) for one in referenced])
    kinds = damage_of(system, referenced)
    faults = [
        {"folder": one.folder, **DAMAGES[kinds[one.case]](one.fom["benchmark"])}
        if DAMAGES[kinds[one.case]]
        else scaled(one, beyond=False)
        for one in referenced
        if kinds
    ]
    found = Sessions(printed, referenced, outside, run(faults) if faults else None)
    left = [str(path) for path in folder.glob("file-systems/*/*")]
    assert not left, f"left on the file systems: {left}"
    return found


@pytest.fixture(scope="module")
def facility(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Sessions]]]:
    """The sessions of every system that a selected test needs, of two systems at once."""
    items = [i for i in request.session.items if i.path == request.path]
    users = [i for i in items if "facility" in i.fixturenames]
    if all(hasattr(item, "callspec") for item in users):
        needed = {item.callspec.params["system"] for item in users}
    else:
        needed = {*foreign.SYSTEMS}
    pool = ThreadPoolExecutor(2)
    # The largest first: no thread is idle while the other one runs the last system.
    systems = sorted(needed, key=lambda system: -len(cases_of(system)))
    yield {
        system: pool.submit(run_all, system, tmp_path_factory.mktemp(system)) for system in systems
    }
    pool.shutdown(cancel_futures=True)


def sessions_of(system: str, facility: dict[str, Future[Sessions]]) -> Sessions:
    found = facility[system].result()
    if "[session.nothing-selected]" in found.printed.output:
        pytest.skip(f"{system}: no environment has a benchmark that there is a check of")
    return found


def with_reference(system: str, facility: dict[str, Future[Sessions]]) -> Sessions:
    found = sessions_of(system, facility)
    if not found.referenced:
        pytest.skip(f"{system}: no reference bounds a figure of a check that runs")
    return found


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_printed_values_pass(system: str, facility) -> None:
    session = sessions_of(system, facility).printed
    skipped = [fields for fields in session.records if fields["result"] == "skip"]
    assert {fields["code"] for fields in skipped} <= MAY_SKIP
    if len(skipped) == len(session.records):
        pytest.skip(f"{system}: {'; '.join({fields['reason'] for fields in skipped})}")
    others = [fields for fields in session.records if fields["result"] != "skip"]
    assert {fields["result"] for fields in others} == {"pass"}, session.output
    assert session.code == 0, session.output
    assert all(fields["foms"] and not fields["warnings"] for fields in others)
    # What bounds the figures is what the inventory has, no more and no less.
    found = {name_of(fields): {} for fields in others}
    for one in asserted(others):
        found[one.name][one.figure.variable] = one.fom["reference"]
    assert found == {case: bounded(system, case) for case in found}


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_no_two_cases_measure_the_same(system: str, facility) -> None:
    """By what references identify a figure by, so that each case has a baseline of its own."""
    cases: dict[tuple, str] = {}
    for fields in sessions_of(system, facility).printed.records:
        tasks = Counter(task["host"] for task in fields["tasks"])
        shared = fields["partition"], fields["environment"], fields["benchmark"]
        for fom in fields["foms"]:
            conditions = frozenset(fields["conditions"].items())
            figure = fom["metric"], fom["size"], fom["location"], fom["placement"]
            key = (*shared, *figure, len(tasks), max(tasks.values(), default=0), conditions)
            assert cases.setdefault(key, fields["case"]) == fields["case"]


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_what_is_run_by_default_takes_two_nodes_at_most(system: str, facility) -> None:
    plan = json.loads((sessions_of(system, facility).printed.folder / "plan.json").read_text())
    plain = [fields for fields in plan["cases"].values() if "full" not in fields["tags"]]
    assert not [fields for fields in plain if fields["nodes"] > 2]


def foms_of(session: Session) -> dict[tuple[str, Figure], dict]:
    return {(one.case, one.figure): one.fom for one in asserted(session.records)}


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_values_just_beyond_their_bounds_fail(system: str, facility) -> None:
    found = with_reference(system, facility)
    assert found.outside.code == 1, found.outside.output
    foms = foms_of(found.outside)
    first: dict[str, Asserted] = {}
    for one in found.referenced:
        assert foms[one.case, one.figure]["verdict"] == "fail", (one, foms[one.case, one.figure])
        first.setdefault(one.case, one)
    for fields in found.outside.records:
        if fields["case"] in first:
            assert (fields["result"], fields["code"]) == ("fail", "figure.outside-bounds"), fields
            one = first[fields["case"]]
            row = references().tables.rows[one.fom["reference"]]
            short = references().tables.sources[row.source].short
            nodes = nodelist_abbrev(fields["nodes"])
            for name in (system, one.figure.variable, row.id, short, row.locator, nodes):
                assert name and name in fields["reason"]


@pytest.mark.parametrize("system", DAMAGED)
def test_damaged_outputs_are_invalid(system: str, facility) -> None:
    found = with_reference(system, facility)
    kinds = damage_of(system, found.referenced)
    results = {fields["case"]: fields["result"] for fields in found.damaged.records}
    wanted = {case: "pass" if kind == "inside" else "invalid" for case, kind in kinds.items()}
    assert {case: results[case] for case in wanted} == wanted
    assert found.damaged.code == 1, found.damaged.output
    foms = foms_of(found.damaged)
    for one in found.referenced:
        if kinds[one.case] == "inside":
            fom = foms[one.case, one.figure]
            assert fom["verdict"] == "pass", (one, fom)
            # It did move, and nearly to the bound.
            moved = abs(fom["value"] - one.fom["value"])
            assert moved >= 0.5 * abs(one.moved(False) - one.fom["value"]), (one, fom)


def test_each_benchmark_meets_each_damage(facility) -> None:
    """Where it has as many cases with a reference."""
    met: dict[str, list[str]] = defaultdict(list)
    for system in DAMAGED:
        referenced = facility[system].result().referenced
        benchmarks = {one.case: one.fom["benchmark"] for one in referenced}
        for case, damage in damage_of(system, referenced).items():
            met[benchmarks[case]].append(damage)
    assert met.keys() == FIGURES.keys()
    lacking = {name for name, kinds in met.items() if set(kinds) != set(DAMAGES)}
    assert all(len(met[name]) < len(DAMAGES) for name in lacking), lacking


@pytest.mark.parametrize("system", ["summit"])
def test_what_a_nodes_own_memory_answers_is_called_so(system: str, facility) -> None:
    def metrics(words: str) -> set[str]:
        records = sessions_of(system, facility).printed.records
        found = [f for f in records if set(words.split()) <= set(f["check"].split())]
        return {fom["metric"] for fields in found for fom in fields["foms"]}

    ior = "ior %access=file-per-process %file_system"
    both, cached = (
        {"write_bandwidth", "read_bandwidth"},
        {"write_bandwidth", "cached_read_bandwidth"},
    )
    # Another node reads; direct I/O; what MPI-IO reads on one node.
    assert metrics(f"{ior}=alpine %api=mpiio") == both
    assert metrics(f"{ior}=burst-buffer %api=posix") == both
    assert metrics(f"{ior}=burst-buffer %api=mpiio") == cached
    others = {"file_creation_rate", "file_removal_rate"}
    assert metrics("mdtest %file_system=burst-buffer") == {
        *others, "cached_file_stat_rate", "cached_file_read_rate",
    }  # fmt: skip
    # On two nodes, a task reads the files that it created.
    assert metrics("mdtest %file_system=alpine") == {
        *others, "file_stat_rate", "cached_file_read_rate",
    }  # fmt: skip


def test_every_printed_value_is_asserted_or_listed(facility, dry_run) -> None:
    by_row: dict[str, set[str]] = defaultdict(set)
    for future in facility.values():
        for fields in future.result().printed.records:
            for fom in fields["foms"]:
                if fom["verdict"] == "pass":
                    for name in [fom["reference"], *fom["others"]]:
                        by_row[name].add(fields["check"].split()[0])
    page = coverage_page.render(references(), by_row, lambda system: dry_run(system).cases)
    left = [
        row.id
        for row in references().rows
        if row.benchmark in coverage_page.PROGRAMS
        and row.id not in by_row
        and not coverage_page.why_not(references(), row)
        and not coverage_page.unmet(row.id)
    ]
    assert not left, f"no check asserts {left}, and the page says no reason"
    if os.environ.get("ACCEPT_GOLDEN"):
        COVERAGE.write_text(page, encoding="utf-8")
    assert COVERAGE.read_text(encoding="utf-8") == page
