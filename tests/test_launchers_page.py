"""The options and directives of docs/launchers.md are those that are written, and no others.

Compared with the job scripts of every system, and with what each launcher gets for the layouts of
test_binding_launchers.py. The tables of options are rendered from ``binding/options.csv``.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import foreign
import pytest
import test_binding_launchers as by_hand
from dry_runs import DryRun, Script
from plumbline.placement import binding
from plumbline.placement.binding import LAUNCHERS
from reframe.core.backends import getlauncher
from reframe.core.schedulers import Job
from reframe.core.schedulers.local import LocalJobScheduler

PAGE = Path(__file__).resolve().parents[1] / "docs" / "launchers.md"

#: What a placeholder of the page stands for; every other one is a word of any kind.
PLACEHOLDERS = {
    "<n>": r"\d+",
    "<list>": r"\d[\d,;:-]*",
    "<sets>": r"\d[\d,+]*",
    "<masks>": r"0x[0-9a-f]+(?:,0x[0-9a-f]+)*",
    "<time>": r"\d+:\d+:\d+",
}

#: Launcher and layout of what is bound beside the scripts: on one node, and on two.
LAYOUTS = [
    *(row[:-1] for row in by_hand.OPTIONS),
    *((name, "eagle", "off-node", "", {}) for name in LAUNCHERS if name != "local"),
]

#: A value of process_manager -> the launcher that the shipped files give it.
LAUNCHER_OF = {"mvapich": "mpiexec", "pals": "mpiexec", "openmpi5": "mpirun-openmpi"}

COMMON = "Words before the program"
DIRECTIVES = {"#SBATCH", "#BSUB", "#PBS", "#flux:"}

#: Section of the page -> its options.
SECTIONS: dict[str, list[str]] = {}
with Path(binding.__file__).with_name("options.csv").open(newline="") as file:
    for row in csv.DictReader(file):
        assert all(row.values()), row
        SECTIONS.setdefault(row["section"], []).append(row["option"])


def pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"(<[a-z]+>)", text)
    return re.compile(
        "".join(PLACEHOLDERS.get(p, ".+") if p.startswith("<") else re.escape(p) for p in parts)
    )


def consume(options: Sequence[str], written: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the options that words are of, and the rest from the first word that is of none."""
    used, rest = set(), list(written)
    while rest:
        for option in options:
            patterns = [pattern(word) for word in option.split()]
            matched = [p.fullmatch(word) for p, word in zip(patterns, rest, strict=False)]
            if len(matched) == len(patterns) and all(matched):
                used.add(option)
                del rest[: len(patterns)]
                break
        else:
            break
    return used, rest


#: Section of the page, and words that a launcher gets or that precede a program.
Written = tuple[str, tuple[str, ...]]


def of_script(script: Script) -> Iterator[Written]:
    """Yield the words of every start of a program in a script."""
    launcher = LAUNCHERS[script.manager]
    bindings = [
        (shlex.split(options), shlex.split(task))
        for options, task in re.findall(r"\bbinding=\((.*?)\) words=\((.*)\) ;;", script.text)
    ]
    for line in script.text.splitlines():
        if "./task.sh" not in line:
            continue
        # What a trap runs is one word of it.
        found = shlex.split(shlex.split(line)[1] if line.startswith("trap ") else line)
        at = found.index("./task.sh")
        before, after = found[:at], found[at + 2 :]
        command = launcher.command.split()
        assert before[: len(command)] == command, f"{script.case}: {line}"
        for options, task in bindings or [([], [])]:
            yield launcher.section, expand(before[len(command) :], "${binding[@]}", options)
            yield COMMON, task_words(expand(after, "${words[@]}", task))
    for word in re.findall(r"\bexport (\w+=[^\s;]*)", script.text):
        if word.split("=")[0] in VARIABLES:
            yield launcher.section, (word,)


def expand(found: list[str], name: str, array: list[str]) -> tuple[str, ...]:
    return tuple(w for word in found for w in (array if word == name else [word]))


def task_words(found: tuple[str, ...]) -> tuple[str, ...]:
    """Return those before the program; numactl takes one option."""
    text = " ".join(map(shlex.quote, found))
    before = re.match(r"(('?[A-Z]\w*=(\S*|'[^']*')|numactl \S+) )*", text)
    return tuple(shlex.split(before[0])) if before else ()


def of_layouts() -> Iterator[Written]:
    """Yield what each launcher gets for the layouts of test_binding_launchers.py."""
    for name, launcher in LAUNCHERS.items():
        if launcher.bind_pair:
            layout = by_hand.laid_out("eagle", "node-pairs", "")
            bound = binding.bind(layout, name, by_hand.node_of("eagle"))
            yield (
                launcher.section,
                tuple(shlex.split(" ".join(binding.bind_pair(bound, name).words))),
            )
    for name, system, placement, at, numbers in LAYOUTS:
        layout = by_hand.laid_out(system, placement, at, **numbers)
        bound = binding.bind(layout, name, by_hand.node_of(system))
        section, options = LAUNCHERS[name].section, [*bound.options]
        # A job's own number of CPUs is kept from srun: its options are complete.
        if name not in ("local", "srun"):
            launcher = getlauncher(LAUNCHER_OF.get(name, name))()
            job = Job.create(LocalJobScheduler(), launcher, name="job")
            job.num_tasks, job.num_tasks_per_node = layout.num_tasks, layout.num_tasks_per_node
            job.num_cpus_per_task = layout.num_cpus_per_task
            launcher.options = [*map(shlex.quote, options)]
            line = launcher.run_command(job)
            command = LAUNCHERS[name].command.split()
            options = shlex.split(line)
            assert options[: len(command)] == command
            options = options[len(command) :]
        yield section, tuple(options)
        yield COMMON, bound.task
        for variable, value in bound.env_vars.items():
            yield section, (f"{variable}={value}",)


#: Variables that a binding gives a job.
VARIABLES = {
    name
    for manager, system, placement, at, numbers in LAYOUTS
    for name in binding.bind(
        by_hand.laid_out(system, placement, at, **numbers), manager, by_hand.node_of(system)
    ).env_vars
}


@pytest.fixture(scope="module")
def scripts(dry_run: Callable[[str], DryRun]) -> list[Script]:
    return [script for system in foreign.SYSTEMS for script in dry_run(system).scripts]


@pytest.fixture(scope="module")
def written(scripts: list[Script]) -> set[Written]:
    return {*of_layouts(), *(found for script in scripts for found in of_script(script))}


def test_every_section_has_options():
    assert {*SECTIONS} == {COMMON, *(launcher.section for launcher in LAUNCHERS.values())}


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_options(section: str, written: set[Written]):
    # The most specific first: `-cc none` before `-cc <list>`.
    options = sorted(SECTIONS[section], key=lambda text: ("<" in text, -len(text.split())))
    used, unknown = set(), []
    for where, found in written:
        if where == section:
            consumed, rest = consume(options, found)
            used |= consumed
            unknown += rest[:1]
    assert not unknown, "written, and not in the table"
    assert not set(options) - used, "in the table, and never written"


@pytest.mark.parametrize("sentinel", sorted(DIRECTIVES))
def test_directives(sentinel: str, scripts: list[Script]):
    page = PAGE.read_text(encoding="utf-8")
    (text,) = re.findall(rf"^### {sentinel}\n(.*?)(?=^##|\Z)", page, flags=re.M | re.S)
    rows = re.findall(r"^\| `(.+?)` \| (.+) \| (.+) \|$", text, flags=re.M)
    assert len(rows) == text.count("\n| ") - 2, "a row without purpose or manual"
    lines = {
        line.removeprefix(f"{sentinel} ")
        for script in scripts
        for line in script.text.splitlines()
        if line.startswith(f"{sentinel} ")
    }
    patterns = {option: pattern(option) for option, *_ in rows}
    assert not [line for line in lines if not any(p.fullmatch(line) for p in patterns.values())]
    assert not [text for text, p in patterns.items() if not any(map(p.fullmatch, lines))]


def test_every_sentinel_has_a_table(scripts: list[Script]):
    found = {s for script in scripts for s in re.findall(r"^(#[A-Za-z]\S*)", script.text, re.M)}
    assert found == DIRECTIVES
