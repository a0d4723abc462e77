"""The job scripts of every system, compared with the ones that were looked at: a change in one
shows in review. ``make golden`` writes them anew.

The golden files have one script for each launcher, scheduler and kind of placement: that of the
first case of the first system that has the three. Of every other script they have the lines that
are like none before, by :func:`like`: a script that is like no other any more is a difference."""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import dry_runs
import foreign
import pytest
import yaml
from dry_runs import DryRun, Script
from plumbline.core import codes

GOLDEN = Path(__file__).with_name("golden")

#: What a case has as parameters -> whether its program is started in another way for them.
OF_PROGRAM = {"test", "operation", "api", "access", "pattern", "model"}

#: What differs between lines that are alike: numbers and lists of them, names of cases, folders,
#: and the program with its arguments, which ``programs.txt`` has.
DIFFERS = [
    (r"FOLDER/[^\s'\"]*", "FOLDER"),
    (r"PROGRAMS/.*?(?= >sample|$)", "PROGRAM"),
    (r"^(#\w+:? .*)rfm_\w+\"?$", r"\1NAME"),
    (r"^for at in .*", "for at in UNITS; do"),
    (r"'--smpiargs=.*?'", "OPTIONS"),
    (r"0x[0-9a-f]+(,0x[0-9a-f]+)*", "N"),
    (r"'?OMP_PLACES=\{.*?\}(?=[' ])'?", "OMP_PLACES=N"),
    (r"\d[\d.,:;+-]*", "N"),
    (r"\b(?:numa|gpu)N((?:numa|gpu)N)?", "N"),
    (r"(\bN )+N\b", "N"),
]


@pytest.fixture(scope="module")
def runs(dry_run: Callable[[str], DryRun]) -> dict[str, DryRun]:
    return {system: dry_run(system) for system in foreign.SYSTEMS}


def kind(script: Script) -> tuple[str, str, str]:
    """Launcher, scheduler and kind of placement: the classes of pairs of GPUs are one kind."""
    return script.manager, script.scheduler, re.sub(r"^gpu-[a-d]$", "gpu-pair", script.placement)


@functools.cache
def declared(system: str) -> str:
    return (foreign.ROOT / "systems" / f"{system}.yaml").read_text(encoding="utf-8")


def like(line: str, script: Script) -> tuple:
    """What a line has in common with the ones that differ from it only in what :data:`DIFFERS`
    has and in words of the system's file: a launcher's words for one kind of placement, a
    directive, or a line of any script."""
    declared_here = declared(script.where.split("/")[0])
    command, _, rest = line.partition(" ")
    if command in ("module", "./loaded.sh"):
        return (command,)
    if command == "export" and re.match(r"\w+", rest)[0] in declared_here:
        return (command,)
    directive = re.match(r"#[A-Za-z]", line)
    words = (rest, rest.lstrip("-"), f"{rest.split('=')[0]}={{")
    if directive and any(word in declared_here for word in words):
        return script.scheduler, command
    for pattern, word in DIFFERS:
        line = re.sub(pattern, word, line)
    if "./task.sh" in line or "binding=(" in line:
        return *kind(script), line
    return (script.scheduler, line) if directive else (line,)


def shown(scripts: list[Script]) -> Iterator[tuple[str, str]]:
    """The golden file of each script that has something of its own, and what is shown of it."""
    seen: set[tuple] = set()
    for script in scripts:
        lines = script.text.splitlines()[1:]
        alike = [like(line, script) for line in lines]
        whole = kind(script) not in seen
        if not whole:
            new = dict(zip(reversed(alike), reversed(lines), strict=True))
            lines = [line for one, line in reversed(new.items()) if one not in seen]
        if lines:
            title = "" if whole else ", where it is like no other"
            files = script.files.items() if whole else ()
            parts = [f"### {script.case}{title}", *lines]
            parts += [f"--- {name}\n{text.rstrip()}" for name, text in files]
            yield f"{script.manager}-{script.scheduler}", "\n".join(parts) + "\n"
        seen |= {kind(script), *alike}


def programs(scripts: list[Script]) -> dict[str, str]:
    """How each check starts its program, by the first script that does."""
    found: dict[str, str] = {}
    for script in scripts:
        name, *parameters = script.check.split()
        of_program = [p for p in parameters if p[1:].partition("=")[0] in OF_PROGRAM]
        (command, *_) = re.findall(r"PROGRAMS/(.*?)(?: >sample|$)", script.text, flags=re.M)
        found.setdefault(" ".join([name, *of_program]), command)
    return dict(sorted(found.items()))


def golden(runs: dict[str, DryRun]) -> dict[str, str]:
    """The text of each golden file."""
    scripts = [script for run in runs.values() for script in run.scripts]
    files: dict[str, str] = defaultdict(str)
    for name, text in shown(scripts):
        files[name] += text
    files["programs"] = "".join(f"{name}: {line}\n" for name, line in programs(scripts).items())
    skipped = {
        f"{case.case.split()[0]} {case.case.rpartition(' ')[2]}: {case.code}\n": None
        for run in runs.values()
        for case in run.cases
        if case.result == "skip"
    }
    files["skipped"] = "".join(skipped)
    return files


def test_scripts(runs: dict[str, DryRun]) -> None:
    files = golden(runs)
    if os.environ.get("ACCEPT_GOLDEN"):
        for path in GOLDEN.glob("*.txt"):
            path.unlink()
        for name, text in files.items():
            (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    looked_at = {path.stem: path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.txt")}
    assert looked_at.keys() == files.keys(), "look at the change, then: make golden"
    for name, text in files.items():
        assert text == looked_at[name], f"{name}: look at the change, then: make golden"


def test_every_script_has_the_lines_that_all_have(runs: dict[str, DryRun]) -> None:
    """What the first system's scripts of a kind have in common, but for what a system declares
    and the launcher's words."""
    lines = {
        script: {
            one
            for line in script.text.splitlines()
            if len(one := like(line, script)) < 3 and not re.fullmatch(r"#\w+:?|export", one[-1])
        }
        for run in runs.values()
        for script in run.scripts
    }
    first: dict[tuple, list[Script]] = {}
    for script in lines:
        found = first.setdefault(kind(script), [script])
        if found[0] is not script and found[0].where == script.where:
            found.append(script)
    for script, own in lines.items():
        common = set.intersection(*(lines[other] for other in first[kind(script)]))
        assert len(common) > 8
        assert not common - own, (script.case, common - own)


def test_every_script_has_what_its_system_declares(runs: dict[str, DryRun]) -> None:
    """The options of its partition, and the modules of its environment."""
    for system, run in runs.items():
        content = dry_runs.content(system)
        partitions = {p["name"]: p for p in content["systems"][0]["partitions"]}
        environments = {e["name"]: e for e in content["environments"]}
        for script in run.scripts:
            _, partition, environment = script.where.split("/")
            lines = script.text.splitlines()
            directives = [line.split(" ", 1)[-1] for line in lines if line.startswith("#")]
            for option in partitions[partition].get("access", []):
                assert option.removeprefix("#flux: ") in directives, (script.case, option)
            for module in environments[environment].get("modules", []):
                assert f"module load {module}" in lines, (script.case, module)


def test_no_script_asks_for_more_than_its_queue_takes(runs: dict[str, DryRun]) -> None:
    machines = yaml.safe_load((GOLDEN.parent / "facility" / "machines.yaml").read_text())
    asked = r"--qos=(\S+)|^#PBS -q (\S+)", r"--nodes=(\d+)|select=(\d+)", r"time=(\d+):(\d+):"
    for system in ("perlmutter", "polaris"):
        assert runs[system].scripts
        for script in runs[system].scripts:
            queue, nodes, (hours, minutes) = (
                [found for found in re.search(pattern, script.text, re.M).groups() if found]
                for pattern in asked
            )
            limit = machines[system]["limits"][queue[0]]
            assert int(nodes[0]) <= limit["nodes"], script.case
            assert int(hours) * 60 + int(minutes) < limit["minutes"], script.case


def test_every_case_has_a_script_or_a_reason(runs: dict[str, DryRun]) -> None:
    for run in runs.values():
        skipped = [case for case in run.cases if not case.runs]
        assert len(run.scripts) + len(skipped) == len(run.cases)
        assert all(case.code in codes.registered() for case in skipped)
