"""The page that tells which test cases each system has, and which printed value which check
asserts, from what was asserted at the simulated facility."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from plumbline.core import paths
from plumbline.reference.lookup import References
from plumbline.reference.row import Row
from plumbline.session import plan
from plumbline.site import weak_assertions
from plumbline.site.inventory import PlannedCase

#: The programs whose every printed value is asserted, or is listed with the reason.
PROGRAMS = ("osu", "babelstream", "ior", "mdtest", "commscope", "gpcnet")

#: The systems that have the six programs: those with Spack environments.
CURRENT = sorted({path.parts[-3] for path in paths.ROOT.glob("spack-env/*/*/spack.yaml")})

#: System and benchmark without a case that runs -> why.
WITHOUT = {("local", "gpcnet"): "needs two nodes"}

ONE_SOCKET = "the nodes have one socket, and which of its cores were measured is not printed"

#: Rows that could decide and that no check meets -> why.
WHY_NOT = {
    "summit-osu-latency-tm-o*-0": "OSU 7 measures no empty message; a build of OSU 5 "
    "prints it, and the check asserts it then",
    "summit-gpcnet-random-ring-latency-p99-congested-03-ar-on-mean": "Table 8 prints the same of "
    "4,500 nodes, and with a number of nodes it is the nearer one",
    "trinity-osu-latency-on-node": ONE_SOCKET,
    "theta-osu-latency-on-node": ONE_SOCKET,
}


def why_not(references: References, row: Row) -> str:
    """Why nothing is asserted by a row that is printed."""
    tables = references.tables
    rule = references.rule(references.fom(row.benchmark, row.metric))
    data = [key for key in row.conditions if tables.conditions[key].role == "data"]
    if row.kind != "measured":
        return f"{row.kind}, not measured"
    if data:
        return f"data: {', '.join(f'{tables.conditions[key].meaning}' for key in data)}"
    if rule.better == "neither":
        return "data: neither more nor less is better"
    if rule.distribution and not references.may_decide(row):
        found = tables.rules.exception(row.id)
        decides = (found and found.statistic) or "mean"
        return f"statistic {row.statistic} of a distribution whose {decides} decides"
    if row.statistic not in tables.rules.decides:
        return f"statistic {row.statistic} is data"
    return ""


def benchmark_of(check: str) -> str:
    """The benchmark of a check, which its name begins with."""
    return re.match(r"[a-z]+", check)[0]


def listed(system: str, **env: str) -> Counter:
    """Benchmark -> how many test cases a plain run would run, by ReFrame's own listing."""
    said = plan.reframe(["-c", str(paths.ROOT / "checks"), "-lC"], system, **env)
    return Counter(map(benchmark_of, re.findall(r"^- (\w+) .*@\w", said, re.M)))


def counted(cases: Iterable[PlannedCase], full: bool = False) -> Counter:
    """Benchmark -> how many test cases a plain run would run, or are at published scale."""
    return Counter(benchmark_of(case.case) for case in cases if ("full" in case.tags) == full)


def matrix(
    asserted: dict[str, set[str]],
    rows: dict[str, Row],
    cases: Callable[[str], Iterable[PlannedCase]],
) -> list[str]:
    """The table of systems and benchmarks.

    :arg asserted: reference id -> names of the checks that asserted it.
    :arg cases: gives all cases of a system.
    """
    of_system = Counter(
        (rows[name].system, benchmark)
        for name, checks in asserted.items()
        for benchmark in {benchmark_of(check) for check in checks}
    )
    lines = [f"| system | {' | '.join(PROGRAMS)} |", f"| --- |{' ---: |' * len(PROGRAMS)}"]
    for system in CURRENT:
        if system == "local":
            # How many depends on the machine at hand: its placements, and what is built there.
            cells = [WITHOUT.get((system, program), "runs") for program in PROGRAMS]
            lines.append(f"| {system} | {' | '.join(cells)} |")
            continue
        plain, full = counted(cases(system)), counted(cases(system), full=True)
        cells = []
        for program in PROGRAMS:
            more = f" + {full[program]}" if full[program] else ""
            held = of_system[system, program]
            cells.append(f"{plain[program]}{more}{f', asserts {held}' if held else ''}")
        lines.append(f"| {system} | {' | '.join(cells)} |")
    return lines


def render(
    references: References,
    asserted: dict[str, set[str]],
    cases: Callable[[str], Iterable[PlannedCase]],
) -> str:
    """The page.

    :arg asserted: reference id -> names of the checks that asserted it.
    :arg cases: gives all cases of a system.
    """
    rows = references.rows
    by_check: dict[str, set[str]] = defaultdict(set)
    for name, checks in asserted.items():
        for check in checks:
            by_check[check].add(name)
    lines = [
        "# What is run, and what is asserted",
        "",
        "What each system runs, which printed values its checks assert, and why the others are not",
        "asserted. For example, `61, asserts 5` means 61 test cases that assert 5 printed values.",
        "",
        "The table has the test cases of the six programs on each current system: those of a plain",
        "run, which take two nodes at most, + those at published scale (tag `full`), and the",
        "number of printed values that they assert. They were counted at a simulated facility:",
        "no job ran on these systems. Other figures are recorded, and compared with nothing. On",
        "the local machine (`local`) programs run once they are built.",
        "",
        *matrix(asserted, references.tables.rows, cases),
        "",
        "## What is asserted",
        "",
        "Generated by `make golden` from sessions of every system at the simulated facility",
        "(`tests/facility`): a printed value counts if a check of that system was compared with",
        "it.",
        "",
        "| check | printed values that it asserts | systems |",
        "| --- | ---: | --- |",
    ]
    for check, names in sorted(by_check.items()):
        systems = sorted({references.tables.rows[name].system for name in names})
        lines.append(f"| {check} | {len(names)} | {', '.join(systems)} |")
    lines += ["", "## Printed values of the six programs", ""]
    lines += ["| program | printed | asserted | not asserted |", "| --- | ---: | ---: | ---: |"]
    left: dict[str, Counter] = {}
    for program in PROGRAMS:
        of_it = [row for row in rows if row.benchmark == program and row.kind != "derived"]
        not_asserted = [row for row in of_it if row.id not in asserted]
        left[program] = Counter(why_not(references, row) or unmet(row.id) for row in not_asserted)
        lines.append(
            f"| {program} | {len(of_it)} | {len(of_it) - len(not_asserted)} | {len(not_asserted)} |"
        )
    lines += ["", "Why the others are not asserted:", ""]
    lines += ["| program | values | reason |", "| --- | ---: | --- |"]
    for program, reasons in left.items():
        lines += [f"| {program} | {count} | {why} |" for why, count in reasons.most_common()]
    lines += [
        "",
        "Sums and ratios that were recomputed from these values (`kind` derived) are data; "
        "`reference/known/derived.csv` has them.",
        "",
        *_weak(references, by_check),
    ]
    return "\n".join(lines)


_WEAK = """## Weak assertions

If a job measured the neighbouring case instead of the requested one (a pair of GPUs of another
class, a variant that was not applied), {weak} of {every} values would not reveal it: their bounds
admit the printed value of that case, which differs in its placement or in one condition. That value
is within the tolerance, or it is better, which no bound forbids. A case fails if one of its values
reveals the difference. If none does, only the binding of its tasks and the program's own output
confirm that it ran as requested. `plumbline lint --weak` lists them for one system, pair by pair.

| system | check | requested | passes as | fails as | weak values (t: within the tolerance) |
| --- | --- | --- | --- | --- | --- |
"""


def _weak(references: References, by_check: dict[str, set[str]]) -> list[str]:
    """The assertions that cannot tell their case from one beside it."""
    alike: dict[tuple, list[weak_assertions.Pair]] = defaultdict(list)
    for pair in weak_assertions.pairs(references, by_check):
        alike[pair.system, pair.check, f"{pair.key} {pair.own}"].append(pair)
    names = {name for pairs in alike.values() for pair in pairs for name in pair.weak}
    every = {name for found in by_check.values() for name in found}
    lines = _WEAK.format(weak=len(names), every=len(every)).splitlines()
    for case, pairs in alike.items():
        passes = ", ".join(pair.other for pair in pairs if not pair.failing)
        fails = ", ".join(pair.other for pair in pairs if pair.failing)
        within = {name for pair in pairs for name in pair.within}
        values = dict.fromkeys(name for pair in pairs for name in pair.weak)
        listed = ", ".join(f"`{name}`{' t' if name in within else ''}" for name in values)
        lines.append(f"| {' | '.join([*case, passes, fails, listed])} |")
    return [*lines, ""]


def unmet(name: str) -> str:
    """The stated reason of a row that could decide and that no check meets; empty without."""
    return next((why for pattern, why in WHY_NOT.items() if fnmatch.fnmatch(name, pattern)), "")
