"""Fuzz: of a damaged output, a parser reads what really stands there, or refuses it.

The mutations are drawn from seeded generators: every run tries the same inputs.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from plumbline import binding, parse
from plumbline.binding import BindingMismatch, Seen
from plumbline.placement import Core, Layout, Task, cpus_of_list

CAPTURES = Path(__file__).with_name("captures")
SEED = 20261121

#: Inputs that are tried of each parser.
INPUTS = {
    "babelstream": 4000,
    "commscope": 4000,
    "fio": 8000,
    "gpcnet": 4000,
    "hpcc": 5000,
    "imb": 12000,
    "ior": 4000,
    "mdtest": 4000,
    "osu": 4000,
}

#: The units that a parser may give, as ``reference/foms.yaml`` and upstream spell them.
UNITS = {
    "babelstream": {"MB/s", "MiB/s", "GB/s", "GiB/s", "TB/s", "TiB/s"},
    "commscope": {"ns", "us", "ms", "s", "B/s"},
    "fio": {"B/s"},
    "gpcnet": {"us", "MiB/s", "one"},
    "hpcc": {"Tflop/s", "Gflop/s", "Gupdate/s", "GB/s", "us"},
    "imb": {"us", "MB/s"},
    "ior": {"MiB/s"},
    "mdtest": {"operation/s"},
    "osu": {"us", "ms", "MB/s", "message/s", "percent"},
}

#: Where a report's figures begin: half of the damage is done below.
FIGURES = {
    "babelstream": "Function",
    "commscope": '"benchmarks"',
    "fio": '"read" : {',
    "gpcnet": "+---",
    "hpcc": "Begin of Summary",
    "imb": "# List of Benchmarks",
    "ior": "Results",
    "mdtest": "SUMMARY",
    "osu": "# Size",
}

#: What a broken run, a lost digit or another locale puts in a number's place.
WORDS = [
    *("nan", "-nan", "NaN", "inf", "-inf", "Infinity", "1e999", "1e-999", "0", "0.00", "-1"),
    *("-0.5", "", " ", "*****", "1,5", "0x1p3", "1_0", "\xb2", "\u0661", "null", "true", "[]"),
    *("{}", '"', "#", "=", "\0", "\x85", "\u2028", "\r", "\n", "\n\n", "9" * 30, "1e5", ".5"),
]

Mutation = Callable[[random.Random, str, int], str]


def _truncate(rng: random.Random, text: str, low: int) -> str:
    return text[: rng.randrange(low, len(text) + 1)]


def _behead(rng: random.Random, text: str, low: int) -> str:
    return text[rng.randrange(low, len(text) + 1) :]


def _cut(rng: random.Random, text: str, low: int) -> str:
    at = rng.randrange(low, len(text) + 1)
    return text[:at] + text[at + rng.choice([1, 2, 8, 80, 800]) :]


def _flip_bit(rng: random.Random, text: str, low: int) -> str:
    at = rng.randrange(low, len(text))
    return text[:at] + chr(ord(text[at]) ^ 1 << rng.randrange(8)) + text[at + 1 :]


def _insert_bytes(rng: random.Random, text: str, low: int) -> str:
    at = rng.randrange(low, len(text) + 1)
    return text[:at] + rng.randbytes(rng.randint(1, 4)).decode("latin-1") + text[at:]


def _change_digit(rng: random.Random, text: str, low: int) -> str:
    places = [match.start() for match in re.finditer(r"[0-9.]", text[low:])]
    if not places:
        return text
    at = low + rng.choice(places)
    return text[:at] + rng.choice("0123456789.-+eE ") + text[at + 1 :]


def _replace_word(rng: random.Random, text: str, low: int) -> str:
    words = list(re.finditer(r"[^\s=,:]+", text[low:]))
    if not words:
        return text
    word = rng.choice(words)
    return text[: low + word.start()] + rng.choice(WORDS) + text[low + word.end() :]


def _of_lines(change: Callable[[random.Random, list[str]], None]) -> Mutation:
    def mutation(rng: random.Random, text: str, low: int) -> str:
        lines = text[low:].splitlines(keepends=True)
        if len(lines) > 1:
            change(rng, lines)
        return text[:low] + "".join(lines)

    return mutation


def _repeat(rng: random.Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    lines[at:at] = lines[at : at + rng.choice([1, 1, 1, 5, len(lines)])]


def _remove(rng: random.Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines))
    del lines[at : at + rng.choice([1, 1, 1, 2, 5])]


def _move(rng: random.Random, lines: list[str]) -> None:
    lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))


def _shuffle(rng: random.Random, lines: list[str]) -> None:
    at, length = rng.randrange(len(lines)), rng.choice([2, 5, len(lines)])
    some = lines[at : at + length]
    rng.shuffle(some)
    lines[at : at + length] = some


MUTATIONS: list[Mutation] = [
    _truncate,
    _behead,
    _cut,
    _flip_bit,
    _insert_bytes,
    _change_digit,
    _replace_word,
    *map(_of_lines, [_repeat, _remove, _move, _shuffle]),
]


def mutated(rng: random.Random, text: str, mark: str, other: str) -> str:
    """The text with one to three damages, or cut and continued by another output."""
    if rng.random() < 0.02:
        return _truncate(rng, text, 0) + _behead(rng, other, 0)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        low = max(text.find(mark), 0) if rng.random() < 0.5 else 0
        if text[low:]:
            text = rng.choice(MUTATIONS)(rng, text, low)
    return text


def numbers_in(text: str) -> set[float]:
    """The numbers that stand in a text between blanks and punctuation."""
    found = set()
    # BabelStream's rates may fill their column; the time stands right behind.
    text = re.sub(r"(\.\d{3})(?=\d+\.\d{5})", r"\1 ", text)
    for word in re.split(r"[\s=,:()|/]+", text):
        try:
            # GPCNeT prints a factor of 1.6 as 1.6X.
            found.add(float(word.removesuffix("X")))
        except ValueError:
            continue
    return found


def check_output(benchmark: str, output: parse.Output, text: str) -> None:
    assert output.foms
    stand_there = numbers_in(text)
    for fom in output.foms:
        assert math.isfinite(fom.value), fom
        assert fom.value in stand_there, f"{fom} stands nowhere in the output"
        assert fom.unit in UNITS[benchmark], fom
        assert fom.size is None or fom.size in stand_there, fom
    assert output.tasks is None or output.tasks in stand_there
    variables = [fom.variable for fom in output.foms]
    assert len(set(variables)) == len(variables), variables


def is_good(benchmark: str, text: str) -> bool:
    try:
        parse.parse(benchmark, text)
    except parse.ParseError:
        return False
    return True


@pytest.mark.parametrize("benchmark", INPUTS)
def test_parser(benchmark: str) -> None:
    rng = random.Random(f"{SEED} {benchmark}")
    folder = CAPTURES / benchmark
    paths = sorted([*folder.glob("*.out"), *folder.glob("*.json")])
    # A report of Comm|Scope is a file of its own; what it prints beside one holds none.
    paths = [path for path in paths if path.suffix == ".json" or benchmark != "commscope"]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    # Most damage is done to outputs of runs that went well.
    well = [which for which, text in enumerate(texts) if is_good(benchmark, text)]
    tried = refused = 0
    for number in range(INPUTS[benchmark]):
        which = rng.choice(well) if rng.random() < 0.9 else rng.randrange(len(texts))
        text = mutated(rng, texts[which], FIGURES[benchmark], rng.choice(texts))
        tried += 1
        try:
            output = parse.parse(benchmark, text)
            check_output(benchmark, output, text)
        except parse.ParseError:
            refused += 1
        except Exception as err:
            pytest.fail(f"seed {SEED}, input {number} from {paths[which].name}: {err!r}\n{text}")
    assert tried == INPUTS[benchmark]
    # Both sides are tried: damage that is seen, and damage beside the figures.
    assert 0.3 * tried < refused < 0.95 * tried, f"{refused} of {tried} refused"


def test_ten_thousand_inputs() -> None:
    assert set(INPUTS) == set(parse.BENCHMARKS)
    assert sum(INPUTS.values()) >= 10_000


STDERR = """\
plumbline-task 1 node1 1,9 0-1 - - 1 -
mpiexec: a warning of the launcher
plumbline-host node1 kernel 6.1.0-31-amd64
plumbline-host node1 cpu_model AMD EPYC 7A53 64-Core Processor
plumbline-task 0 node1 0,8 0-1 - - 0 -
plumbline-task 2 node2 0,8 0-1 - - 0 -
plumbline-host node2 transparent_hugepages always [madvise] never
plumbline-task 3 node2 1 0-1 - - 1 -
"""


def test_binding() -> None:
    cores = [Core((0, 8), 0, 0, 0, 0), Core((1, 9), 0, 0, 0, 1)]
    layout = Layout("two nodes", tuple(Task(n, (core,)) for n in (0, 1) for core in cores))
    binding.prove(layout, binding.seen(STDERR))
    rng = random.Random(f"{SEED} binding")
    tried = refused = 0
    for number in range(4000):
        text = mutated(rng, STDERR, "plumbline-task", STDERR)
        tried += 1
        try:
            for host, facts in binding.host_facts(text).items():
                assert host in text, host
                assert all(key in text and value in text for key, value in facts.items()), facts
            tasks = binding.seen(text)
            check_tasks(tasks, text)
            binding.prove(layout, tasks)
            assert [task.rank for task in tasks] == [0, 1, 2, 3]
            assert len({task.host for task in tasks}) == 2
            for task, right in zip(tasks, ["0,8", "1,9", "0,8", "1,9"], strict=True):
                assert cpus_of_list(task.cpus) <= cpus_of_list(right), task
        except BindingMismatch:
            refused += 1
        except Exception as err:
            pytest.fail(f"seed {SEED}, input {number}: {err!r}\n{text}")
    assert tried == 4000
    assert 0.3 * tried < refused < 0.95 * tried, f"{refused} of {tried} refused"


def check_tasks(tasks: list[Seen], text: str) -> None:
    assert [task.rank for task in tasks] == sorted(task.rank for task in tasks)
    for task in tasks:
        assert task.host in text, task
        assert task.cpus in text, task
