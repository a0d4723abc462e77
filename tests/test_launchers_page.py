"""docs/launchers.md tells every option that is written, and none that is not: compared with the
job scripts of every system, and with the options that each launcher gets for the layouts of
test_binding_launchers.py."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import foreign
import pytest
import test_binding_launchers as by_hand
from dry_runs import DryRun, Script
from plumbline.placement import binding
from reframe.core.backends import getlauncher

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "launchers.md").read_text(encoding="utf-8")

#: What a placeholder of the page stands for; every other one is a word of any kind.
PLACEHOLDERS = {
    "<n>": r"\d+",
    "<list>": r"\d[\d,;:-]*",
    "<sets>": r"\d[\d,+]*",
    "<masks>": r"0x[0-9a-f]+(?:,0x[0-9a-f]+)*",
    "<time>": r"\d+:\d+:\d+",
}

#: Launcher and layout: what is bound beside the scripts. The launchers that say more on
#: several nodes are there with two.
LAYOUTS = [
    *(
        (manager, system, placement, at, numbers)
        for manager, system, placement, at, numbers, _ in by_hand.OPTIONS
    ),
    *(
        (manager, "eagle", "off-node", "", {})
        for manager in binding.LAUNCHERS
        if manager != "local"
    ),
]

#: A value that stands for a process manager alone -> the launcher that the shipped files give it.
LAUNCHER_OF = {"mvapich": "mpiexec", "pals": "mpiexec", "openmpi5": "mpirun-openmpi"}


# -- the page ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of a table of options: the option as the page has it."""

    section: str
    option: str

    @functools.cached_property
    def words(self) -> list[re.Pattern[str]]:
        return [_pattern(word) for word in self.option.split(" ")]

    def begins(self, words: Sequence[str]) -> bool:
        return len(words) >= len(self.words) and all(
            pattern.fullmatch(word) for pattern, word in zip(self.words, words, strict=False)
        )

    def is_line(self, line: str) -> bool:
        """Whether it is all of a directive."""
        return bool(_pattern(self.option).fullmatch(line))


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"(<[a-z]+>)", text)
    return re.compile(
        "".join(PLACEHOLDERS.get(p, ".+") if p.startswith("<") else re.escape(p) for p in parts)
    )


def _table(section: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    (text,) = re.findall(rf"^##+ {re.escape(section)}\n(.*?)(?=^##|\Z)", PAGE, flags=re.M | re.S)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def _rows(section: str) -> list[Row]:
    """Those that say most come first: ``-cc none`` before ``-cc <list>``."""
    rows = [Row(section, cells[0].strip("`")) for cells in _table(section)]
    assert rows
    return sorted(rows, key=lambda row: ("<" in row.option, -len(row.words)))


COMMON = "Words before the program"
DIRECTIVES = {"#SBATCH", "#BSUB", "#PBS", "#flux:"}

#: Value of launcher or process_manager -> its section, and its command.
SELECTED = _table("Which value selects which")
ANCHORS = {
    re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-"): heading
    for heading in re.findall(r"^##+ (.*)$", PAGE, flags=re.M)
}
SECTIONS = {
    cells[0].strip("`"): ANCHORS[re.findall(r"\(#(.*?)\)", cells[3])[0]] for cells in SELECTED
}
COMMANDS = {cells[0].strip("`"): cells[2].strip("`") for cells in SELECTED}


def _consume(rows: list[Row], words: Sequence[str]) -> tuple[set[Row], list[str]]:
    """The rows that words are of, and what is left where one is of none."""
    used, rest = set(), list(words)
    while rest:
        row = next((row for row in rows if row.begins(rest)), None)
        if row is None:
            break
        used.add(row)
        del rest[: len(row.words)]
    return used, rest


# -- what is written -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """Words that a launcher gets, or that stand before a program.

    :ivar where: for a message.
    :ivar section: of the page.
    """

    where: str
    section: str
    words: tuple[str, ...]


def _of_script(case: str, manager: str, script: str) -> Iterator[Written]:
    """The words of every start of a program in a script."""
    bindings = [
        (shlex.split(options), shlex.split(words))
        for options, words in re.findall(r"\bbinding=\((.*?)\) words=\((.*)\) ;;", script)
    ]
    for line in script.splitlines():
        if "./task.sh" not in line:
            continue
        # What a trap runs is one word of it.
        words = shlex.split(shlex.split(line)[1] if line.startswith("trap ") else line)
        at = words.index("./task.sh")
        before, after = words[:at], words[at + 2 :]
        command = COMMANDS[manager].split() if COMMANDS[manager] != "none" else []
        assert before[: len(command)] == command, f"{case}: {line}"
        for options, told in bindings or [([], [])]:
            yield Written(
                case,
                SECTIONS[manager],
                (*_in_place(before[len(command) :], "${binding[@]}", options),),
            )
            yield Written(case, COMMON, (*_task_words(_in_place(after, "${words[@]}", told)),))
    yield from (
        Written(case, SECTIONS[manager], (word,))
        for word in re.findall(r"\bexport (\w+=[^\s;]*)", script)
        if word.split("=")[0] in VARIABLES
    )


def _in_place(words: list[str], name: str, array: list[str]) -> list[str]:
    return [w for word in words for w in (array if word == name else [word])]


def _task_words(words: list[str]) -> list[str]:
    """Those before the program."""
    found = []
    for word in words:
        # numactl takes one option.
        if not (re.match(r"[A-Z]\w*=", word) or word == "numactl" or found[-1:] == ["numactl"]):
            break
        found.append(word)
    return found


def _by_hand() -> Iterator[Written]:
    """What each launcher gets for the layouts of test_binding_launchers.py."""
    for manager in binding.KEPT_TO_PAIR:
        layout = by_hand.laid_out("eagle", "node-pairs", "")
        pair = binding.on_pair(binding.bind(layout, manager, by_hand.node_of("eagle")), manager)
        words = shlex.split(" ".join(pair.words))
        yield Written(f"{manager}, pairs of nodes", SECTIONS[manager], tuple(words))
    for manager, system, placement, at, numbers in LAYOUTS:
        layout = by_hand.laid_out(system, placement, at, **numbers)
        bound = binding.bind(layout, manager, by_hand.node_of(system))
        where = f"{manager}, {placement} on {system}"
        options = list(bound.options)
        # A job's own number of CPUs is kept from srun: its options say all.
        if manager not in ("local", "srun"):
            launcher = getlauncher(LAUNCHER_OF.get(manager, manager))()
            line = by_hand.command(launcher, layout, [*map(shlex.quote, options)])
            command = COMMANDS[manager].split()
            options = shlex.split(line)
            assert options[: len(command)] == command
            options = options[len(command) :]
        yield Written(where, SECTIONS[manager], tuple(options))
        yield Written(where, COMMON, bound.task)
        for name, value in bound.env_vars.items():
            yield Written(where, SECTIONS[manager], (f"{name}={value}",))


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
def written(scripts: list[Script]) -> tuple[Written, ...]:
    of_scripts = [
        w for script in scripts for w in _of_script(script.case, script.manager, script.text)
    ]
    return tuple(dict.fromkeys([*of_scripts, *_by_hand()]))


@pytest.fixture(scope="module")
def directives(scripts: list[Script]) -> frozenset[tuple[str, str]]:
    """Every directive of the scripts: sentinel, and what follows."""
    found = set()
    for script in scripts:
        for line in script.text.splitlines():
            if re.match(r"#[A-Za-z]", line):
                found.add(tuple(line.split(" ", 1)))
    return frozenset(found)


# -- one against the other -----------------------------------------------------------------------


def test_every_launcher_is_selected_by_a_value():
    assert set(SECTIONS) == set(binding.LAUNCHERS)


@pytest.mark.parametrize("section", sorted({*SECTIONS.values(), COMMON}))
def test_options(section: str, written: tuple[Written, ...]):
    rows, used, unknown = _rows(section), set(), {}
    for one in written:
        if one.section == section:
            found, rest = _consume(rows, one.words)
            used |= found
            if rest:
                unknown.setdefault(rest[0], one.where)
    assert not unknown, f"not in docs/launchers.md, {section}: {unknown}"
    assert not {row.option for row in rows} - {row.option for row in used}, "no longer written"


@pytest.mark.parametrize("sentinel", sorted(DIRECTIVES))
def test_directives(sentinel: str, directives: frozenset[tuple[str, str]]):
    rows = _rows(sentinel)
    lines = [line for found, line in directives if found == sentinel]
    assert lines
    unknown = [line for line in lines if not any(row.is_line(line) for row in rows)]
    assert not unknown, f"not in docs/launchers.md, {sentinel}"
    unused = [row.option for row in rows if not any(row.is_line(line) for line in lines)]
    assert not unused, "no longer written"


def test_every_sentinel_has_a_table(directives: frozenset[tuple[str, str]]):
    assert {sentinel for sentinel, _ in directives} == DIRECTIVES


def test_every_option_has_its_manual():
    for section in {*SECTIONS.values(), COMMON, *DIRECTIVES}:
        for cells in _table(section):
            assert len(cells) == 3 and all(cells), cells


def _messages() -> list[str]:
    """What the launchers' refusals say, in all modules: those that name the launcher go around
    them, or say that it is not known."""
    modules = Path(binding.__file__).parent.glob("*.py")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules]
    raised = [node.exc for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    calls = [call for call in raised if getattr(call.func, "id", "") == "BindingError"]
    return [call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)]


def test_what_a_launcher_cannot_express():
    """Each refusal of a launcher, by its first words."""
    told = [cells[0].strip('"') for cells in _table("What a launcher cannot express")]
    messages = _messages()
    assert len(messages) > 5
    assert [m for m in messages if not any(m.startswith(start) for start in told)] == []
    assert [start for start in told if not any(m.startswith(start) for m in messages)] == []


def test_who_cannot_give_each_task_a_gpu():
    """The page's list is of those that refuse."""
    told = {
        cells[0].strip('"'): set(re.findall(r"`(.*?)`", cells[1]))
        for cells in _table("What a launcher cannot express")
    }
    refusing = {
        launcher
        for launcher, layout, says in by_hand.UNBOUND
        if layout.placement == "all-gpus" and says == by_hand.OWN
    }
    assert told[f"it {by_hand.OWN}"] == refusing
