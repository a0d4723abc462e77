"""Every system runs all its checks at the simulated facility, whose numbers come from the second
transcription of the papers: at the printed values, just within their bounds, just beyond them, and
with damaged outputs. ``make golden`` writes ``docs/coverage.md`` from what was asserted."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import defaultdict
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

#: Lines of a program's output that hold the figures with a reference.
HELD = {
    "babelstream": r"^(Copy|Mul|Add|Triad|Dot) ",
    "commscope": r'"(real_time|bytes_per_second)"',
    "gpcnet": r"RR Two-sided|Multiple Allreduce",
    "imb": r"^ +\d+ +\d+ +\d+\.",
    "ior": r'"bw|bwMaxMIB',
    "mdtest": r"^ *File creation",
    "osu": r"^ *\d+(\.\d+)? *",
}


def damages() -> dict[str, list[dict]]:
    """Faults after which no figure with a reference can be trusted, by the damage."""
    programs = {
        "babelstream": "*-stream",
        "commscope": "comm_scope",
        "gpcnet": "network_*",
        "imb": "IMB-MPI1",
        "osu": "osu_*",
    }
    names = {benchmark: programs.get(benchmark, benchmark) for benchmark in HELD}
    return {
        "garbled": [
            {"kind": "garble", "program": names[b], "match": line} for b, line in HELD.items()
        ],
        "missing": [
            {"kind": "missing", "program": names[b], "line": line} for b, line in HELD.items()
        ],
        "truncated": [{"kind": "truncate"}],
    }


@dataclass(frozen=True)
class Asserted:
    """A figure that a reference bounds: where it was measured, and its bounds."""

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


def asserted(records: list[dict]) -> Iterator[Asserted]:
    """The figures of a session that a reference bounds."""
    for fields in records:
        number = fields["case"].split()[0]
        name = fields["check"].split()[0]
        own = f"{name}_{number}" if "%" in fields["check"] else name
        for fom in fields["foms"]:
            if fom["verdict"] != "not-asserted" and fom["reference"]:
                yield Asserted(
                    fields["case"],
                    f"{fields['environment']}/{own}",
                    number,
                    Figure(fom["metric"], fom["size"], fom["location"]),
                    fom | {"benchmark": fields["benchmark"]},
                )


@dataclass(frozen=True)
class Sessions:
    """A system's sessions at the facility.

    :ivar printed: all its cases, at the printed values.
    :ivar inside, outside: those with a reference, just within their bounds and just beyond.
    :ivar damaged: the same with damaged outputs: one case after the other with the next damage.
    """

    printed: Session
    held: list[Asserted]
    inside: Session | None = None
    outside: Session | None = None
    damaged: Session | None = None


def damage_of(system: str, held: list[Asserted]) -> dict[str, str]:
    """Case -> its damage: by turns from case to case of a benchmark, and from system to system."""
    turns = itertools.islice(itertools.cycle(damages()), foreign.SYSTEMS.index(system), None)
    cases = dict.fromkeys(sorted((one.fom["benchmark"], one.case) for one in held))
    return {case: damage for (_, case), damage in zip(cases, turns, strict=False)}


def run_all(system: str, folder: Path) -> Sessions:
    foreign.prepare(system, folder)
    printed = foreign.run(system, folder, "--tag=.*", *FEW, patience=1500)
    held = list(asserted(printed.records))
    if not held:
        return Sessions(printed, held)
    selected = ["--tag=.*", *FEW]
    for number in sorted({one.hash for one in held}):
        selected += ["-n", f"/{number}"]

    def scaled(beyond: bool) -> list[dict]:
        faults = []
        for one in held:
            value, factor = one.fom["value"], one.moved(beyond) / one.fom["value"]
            # What the program measures is a time, of which it makes the bandwidth.
            if one.fom["benchmark"] in ("commscope", "imb") and "bandwidth" in one.figure.metric:
                value, factor = (one.figure.size or 2**30) / value, 1 / factor
            faults.append({"kind": "scale", "folder": one.folder, "near": value, "factor": factor})
        return faults

    def run(fault: list[dict]) -> Session:
        return foreign.run(system, folder, *selected, patience=1500, fault=fault)

    kinds = damage_of(system, held)
    damaged = [
        {**fault, "folder": one.folder} for one in held for fault in damages()[kinds[one.case]]
    ]
    found = Sessions(
        printed, held, run(scaled(beyond=False)), run(scaled(beyond=True)), run(damaged)
    )
    left = [str(path) for path in folder.glob("file-systems/*/*")]
    assert not left, f"left on the file systems: {left}"
    return found


@pytest.fixture(scope="module")
def facility(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Sessions]]]:
    """The sessions of every system, of two systems at once."""
    pool = ThreadPoolExecutor(2)
    inventories = foreign.ROOT / "systems" / "inventory"
    sizes = {path.stem: path.stat().st_size for path in inventories.glob("*.json")}
    # The largest first: no thread is idle while the other one runs the last system.
    systems = sorted(foreign.SYSTEMS, key=lambda system: -sizes.get(system, 0))
    yield {
        system: pool.submit(run_all, system, tmp_path_factory.mktemp(system)) for system in systems
    }
    pool.shutdown(cancel_futures=True)


def sessions_of(system: str, facility: dict[str, Future[Sessions]]) -> Sessions:
    found = facility[system].result()
    if "no test case is selected" in found.printed.output:
        pytest.skip(f"{system}: no environment has a benchmark that there is a check of")
    return found


def with_reference(system: str, facility: dict[str, Future[Sessions]]) -> Sessions:
    found = sessions_of(system, facility)
    if not found.held:
        pytest.skip(f"{system}: no reference bounds a figure of a check that runs")
    return found


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_printed_values_pass(system: str, facility) -> None:
    session = sessions_of(system, facility).printed
    if all(fields["result"] == "skip" for fields in session.records):
        assert {fields["code"] for fields in session.records} <= MAY_SKIP
        reasons = {fields["reason"] for fields in session.records}
        pytest.skip(f"{system}: {'; '.join(reasons)}")
    strange = [
        (fields["check"], fields["environment"], fields["result"], fields["reason"])
        for fields in session.records
        if fields["result"] != "pass"
        and not (fields["result"] == "skip" and fields["code"] in MAY_SKIP)
    ]
    assert not strange, session.output
    assert session.code == 0, session.output
    assert any(fields["foms"] for fields in session.records)
    assert not [fields["warnings"] for fields in session.records if fields["warnings"]]

    # What bounds the figures is what the inventory has, no more and no less.
    for words in ("bounded", "vanished", "does not exist"):
        assert words not in session.output


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_what_is_run_by_default_takes_two_nodes_at_most(system: str, facility) -> None:
    plan = json.loads((sessions_of(system, facility).printed.folder / "plan.json").read_text())
    plain = [fields for fields in plan["cases"].values() if "full" not in fields["tags"]]
    assert not [fields for fields in plain if fields["nodes"] > 2]


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_values_just_within_their_bounds_pass(system: str, facility) -> None:
    found = with_reference(system, facility)
    told = {(one.case, one.figure): one.fom for one in asserted(found.inside.records)}
    for one in found.held:
        fom = told[one.case, one.figure]
        assert fom["verdict"] == "pass", (one, fom)
        # It did move, and nearly to the bound.
        moved = abs(fom["value"] - one.fom["value"])
        assert moved >= 0.5 * abs(one.moved(False) - one.fom["value"]), (one, fom)
    assert found.inside.code == 0, found.inside.output


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_values_just_beyond_their_bounds_fail(system: str, facility) -> None:
    found = with_reference(system, facility)
    assert found.outside.code == 1, found.outside.output
    told = {(one.case, one.figure): one.fom for one in asserted(found.outside.records)}
    cases: dict[str, list[Asserted]] = defaultdict(list)
    for one in found.held:
        assert told[one.case, one.figure]["verdict"] == "fail", (one, told[one.case, one.figure])
        cases[one.case].append(one)
    for fields in found.outside.records:
        here = cases.get(fields["case"])
        if not here:
            continue
        assert fields["result"] == "fail", fields
        reason, first = fields["reason"], here[0]
        row = references().tables.rows[first.fom["reference"]]
        short = references().tables.sources[row.source].short
        assert fields["nodes"], fields
        nodes = nodelist_abbrev(fields["nodes"])
        assert reason.endswith(f"measured on {nodes}"), reason
        told_of = [system, first.figure.variable, row.id, short, row.locator]
        for words in told_of:
            assert words in reason, f"{words!r} is not told: {reason}"
        assert re.search(
            r"= [\d.e+-]+ \S+ .*outside \[(open|[\d.e+-]+), (open|[\d.e+-]+)\]", reason
        )


@pytest.mark.parametrize("system", foreign.SYSTEMS)
def test_damaged_outputs_are_invalid(system: str, facility) -> None:
    found = with_reference(system, facility)
    session = found.damaged
    results = {fields["case"]: fields for fields in session.records}
    for case in {one.case for one in found.held}:
        assert results[case]["result"] == "invalid", results[case]
    assert session.code == 1, session.output


def test_each_benchmark_meets_each_damage(facility) -> None:
    """Where it has three cases or more with a reference."""
    met: dict[str, list[str]] = defaultdict(list)
    for system, future in facility.items():
        held = future.result().held
        benchmarks = {one.case: one.fom["benchmark"] for one in held}
        for case, damage in damage_of(system, held).items():
            met[benchmarks[case]].append(damage)
    lacking = {name for name, kinds in met.items() if set(kinds) != set(damages())}
    assert all(len(met[name]) < 3 for name in lacking), lacking


def test_what_a_nodes_own_memory_answers_is_called_so(facility) -> None:
    def metrics(system: str, words: str) -> set[str]:
        records = sessions_of(system, facility).printed.records
        found = [f for f in records if set(words.split()) <= set(f["check"].split())]
        return {fom["metric"] for fields in found for fom in fields["foms"]}

    ior = "ior %access=file-per-process %file_system"
    both, cached = (
        {"write_bandwidth", "read_bandwidth"},
        {"write_bandwidth", "cached_read_bandwidth"},
    )
    # Another node reads; direct I/O; what MPI-IO reads on one node.
    assert metrics("summit", f"{ior}=alpine %api=mpiio") == both
    assert metrics("summit", f"{ior}=burst-buffer %api=posix") == both
    assert metrics("summit", f"{ior}=burst-buffer %api=mpiio") == cached
    assert "cached_file_read_rate" in metrics("summit", "mdtest %file_system=burst-buffer")
    assert "file_read_rate" in metrics("summit", "mdtest %file_system=alpine")


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
    assert COVERAGE.read_text(encoding="utf-8") == page, "look at the change, then: make golden"
