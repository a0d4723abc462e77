"""Fuzz: of a damaged output, a parser reads what really stands there, or refuses it, in time and
memory that grow with the output and no faster.

The mutations are drawn from seeded generators: every run tries the same inputs. ``bench/fuzz.py``
tries ten times as many.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import random
import re
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plumbline import parse
from plumbline.check import samples, states
from plumbline.check.job_output import last_line
from plumbline.core import paths
from plumbline.placement import proof
from plumbline.placement.node import read_nodes
from plumbline.placement.placement import Layout, Task
from plumbline.placement.proof import BindingMismatch, TaskReport
from plumbline.placement.topology import Core, cpus_of_list

CAPTURES = Path(__file__).with_name("captures")
SEED = 20261121

#: Inputs that are tried of each parser.
INPUTS = {
    "babelstream": 14000,
    "commscope": 14000,
    "fio": 14000,
    "gpcnet": 11000,
    "hpcc": 4000,
    "imb": 12000,
    "ior": 10000,
    "mdtest": 12000,
    "osu": 14000,
}

#: Where a report's figures begin, below which half of the damage is done; and the units that its
#: parser may give, as ``reference/foms.yaml`` and upstream spell them.
FIGURES = {
    "babelstream": ("Function", {"MB/s", "MiB/s", "GB/s", "GiB/s", "TB/s", "TiB/s"}),
    "commscope": ('"benchmarks"', {"ns", "us", "ms", "s", "B/s"}),
    "fio": ('"read" : {', {"B/s"}),
    "gpcnet": ("+---", {"us", "MiB/s", "one"}),
    "hpcc": ("Begin of Summary", {"Tflop/s", "Gflop/s", "Gupdate/s", "GB/s", "us"}),
    "imb": ("# List of Benchmarks", {"us", "MB/s"}),
    "ior": ("Results", {"MiB/s"}),
    "mdtest": ("SUMMARY", {"operation/s"}),
    "osu": ("# Size", {"us", "ms", "MB/s", "message/s", "percent"}),
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
        # IMB's bandwidths below 0.5 MB/s are read from the time.
        derived = benchmark == "imb" and fom.unit == "MB/s" and fom.value < 0.5
        # Copies within the host have twice the rate that Comm|Scope prints.
        printed = fom.value / 2 if fom.metric.startswith("numa_copy") else fom.value
        assert derived or printed in stand_there, f"{fom} stands nowhere in the output"
        assert fom.unit in FIGURES[benchmark][1], fom
        assert fom.size is None or fom.size in stand_there, fom
    # Each rank of OSU over NCCL or RCCL prints a line.
    ranks = len(re.findall(r"^#Using [NR]CCL$", text, re.M))
    assert output.tasks is None or output.tasks in ({ranks} if ranks else stand_there)
    variables = [fom.variable for fom in output.foms]
    assert len(set(variables)) == len(variables), variables


def is_good(benchmark: str, text: str) -> bool:
    try:
        parse.parse(benchmark, text)
    except parse.ParseError:
        return False
    return True


@functools.cache
def captured(benchmark: str) -> dict[str, str]:
    """The captures of a benchmark: name -> text."""
    folder = CAPTURES / benchmark
    found = sorted([*folder.glob("*.out"), *folder.glob("*.json")])
    # A report of Comm|Scope is a file of its own; what it prints beside one holds none.
    return {
        path.name: path.read_text(encoding="utf-8", errors="replace")
        for path in found
        if path.suffix == ".json" or benchmark != "commscope"
    }


class TooMuchError(BaseException):
    """An input took more time than it may; no parser catches this by mistake."""


#: Seconds of CPU time, and bytes of memory, that 1 MiB may take; smaller inputs may, too.
SECONDS, MEMORY = 1.0, 192 * 2**20

#: How many times slower the machine of a test may be than that of the bench.
PATIENCE = 4


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Ends what takes more CPU time, or more than :data:`MEMORY` beside what is taken already."""

    def ended(*_: object) -> None:
        raise TooMuchError(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, ended)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, before)


def seconds_of(benchmark: str, text: str, limit: float) -> float:
    """CPU seconds that reading an input takes; nothing but a refusal may come of it."""
    began = time.process_time()
    with contextlib.suppress(parse.ParseError), bounded(limit):
        parse.parse(benchmark, text)
    return time.process_time() - began


def tried(benchmark: str, count: int, seed: str) -> Counter[str]:
    """Tries so many mutated inputs of a parser, and counts those that it refused."""
    rng = random.Random(f"{seed} {benchmark}")
    names, texts = [*captured(benchmark)], [*captured(benchmark).values()]
    # Most damage is done to outputs of runs that went well.
    well = [which for which, text in enumerate(texts) if is_good(benchmark, text)]
    counts = Counter(tried=0, refused=0)
    for number in range(count):
        which = rng.choice(well) if rng.random() < 0.9 else rng.randrange(len(texts))
        text = mutated(rng, texts[which], FIGURES[benchmark][0], rng.choice(texts))
        counts["tried"] += 1
        try:
            output = parse.parse(benchmark, text)
            check_output(benchmark, output, text)
        except parse.ParseError:
            counts["refused"] += 1
        except Exception as err:
            raise AssertionError(f"seed {seed}, input {number}, {names[which]}:\n{text}") from err
    return counts


@pytest.mark.holds("outputs")
@pytest.mark.parametrize("benchmark", INPUTS)
def test_parser(benchmark: str) -> None:
    with bounded(120):
        counts = tried(benchmark, INPUTS[benchmark], str(SEED))
    assert counts["tried"] == INPUTS[benchmark]
    # Both sides are tried: damage that is seen, and damage beside the figures.
    assert 0.3 < counts["refused"] / counts["tried"] < 0.95, counts


def test_a_hundred_thousand_inputs() -> None:
    assert set(INPUTS) == set(parse.BENCHMARKS)
    assert sum(INPUTS.values()) >= 100_000


#: What is grown: one output of each form that a parser reads.
FORMS = [
    "babelstream/main_omp.out",
    "babelstream/v40_cuda.out",
    "babelstream/main_omp_csv.out",
    "commscope/v0120_repetitions_json_file.json",
    "fio/write_1m_direct_json.out",
    "gpcnet/v13_mpich_network_load_test_10nodes.out",
    "hpcc/n400_2ranks.out",
    "imb/allreduce.out",
    "ior/v400_mpich_posix_fpp.out",
    "ior/v400_mpich_json_i3.out",
    "mdtest/v330_mpich_P.out",
    "mdtest/v400_mpich_files_i3.out",
    "osu/v74_mpich_allreduce_z.out",
    "osu/osu_mbw_mr.out",
]


def grown(rng: random.Random, text: str, count: int, size: int) -> Iterator[str]:
    """Outputs of about a size, made of one by repeating a part of a line, the start of a line in
    its place, as lines, or as lines at the end; what stands behind the part is kept or lost."""
    lines = text.splitlines(keepends=True)
    # Lines that differ in their figures alone are alike to a parser.
    shapes = {re.sub(r"[\d.]+", "0", line): at for at, line in enumerate(lines)}
    places = [
        (at, part)
        for at in shapes.values()
        for part in re.finditer(r"[^\S\n]+|\d+|[^\W\d]+|[^\w\s]+|\n", lines[at])
    ]
    for at, part in rng.choices(places, k=count):
        line, before, after = lines[at], "".join(lines[:at]), "".join(lines[at + 1 :])
        start, rest = line[: part.end()], line[part.end() :]
        run = line[: part.start()] + part[0] * (size // len(part[0]))
        row = start.removesuffix("\n") + "\n"
        rows = row * (size // len(row))
        yield rng.choice(
            [
                before + run + rest + after,
                before + run + "?\n" + after,
                before + start * (size // len(start)) + rest + after,
                before + rows + line + after,
                text + rows,
            ]
        )


@pytest.mark.holds("outputs")
@pytest.mark.parametrize("form", FORMS)
def test_time_and_memory_of_grown_outputs(form: str) -> None:
    benchmark, _, name = form.partition("/")
    text = captured(benchmark)[name]
    rng = random.Random(f"{SEED} {form}")
    for output in grown(rng, text, 200, 2**16):
        seconds_of(benchmark, output, SECONDS)
    for output in grown(rng, text, 10, 2**20):
        seconds_of(benchmark, output, SECONDS * PATIENCE)


#: Inputs that once took quadratic time: capture, a place in it, and what is put there, grown.
ONCE_QUADRATIC = [
    ("commscope/v0120_memcpy_json_file.json", r"\Z", "\n", ""),
    ("ior/v400_mpich_json.out", r"\Z", "\n", ""),
    ("ior/v400_mpich_posix_fpp.out", r"(?<=^api) +:", " ", "x"),
    ("ior/v400_mpich_posix_fpp.out", r"\A", "WARNING: The file ", "The file \n"),
    ("babelstream/main_omp.out", r"(?<=^Running ).*", "1", "x"),
    ("babelstream/main_omp.out", r"(?<=^Running ).*", " ", "x"),
    ("mdtest/v400_mpich_files.out", r"(?<=^   File stat) +", " ", "x"),
    ("mdtest/v400_mpich_files.out", r"(?<= '-u' ').*?(?=')", "a", ""),
    ("hpcc/n400_2ranks.out", r"\Z", "Function      Rate (\n", ""),
    ("hpcc/n400_2ranks.out", r"(?<=^HPL_Tflops=).*", "1", "x"),
]


@pytest.mark.parametrize(("form", "place", "filler", "end"), ONCE_QUADRATIC)
def test_what_once_took_quadratic_time(form: str, place: str, filler: str, end: str) -> None:
    benchmark, _, name = form.partition("/")
    filler *= 2**20 // len(filler)
    text, count = re.subn(place, lambda _: filler + end, captured(benchmark)[name], flags=re.M)
    assert count == 1
    seconds_of(benchmark, text, SECONDS * PATIENCE)


@pytest.mark.parametrize(
    ("form", "place", "words"),
    [
        # More digits than int() takes; a place is one of a node.
        ("commscope/v0120_memcpy_json_file.json", r"(?<=NUMAToNUMA/)\d+", "1" * 5000),
        ("gpcnet/v13_mpich_network_load_test_10nodes.out", r"\d+(?= nodes running N)", "1" * 5000),
        # Half of the last digit would be zero.
        ("ior/v400_mpich_posix_fpp.out", r"(^write(?: +\S+){8}) +\S+", r"\1 0." + "0" * 400),
        ("babelstream/main_omp.out", r"(?<=^Running )\D*(?=\d+ times)", ""),
    ],
)
def test_what_once_was_another_exception(form: str, place: str, words: str) -> None:
    benchmark, _, name = form.partition("/")
    text, count = re.subn(place, words, captured(benchmark)[name], flags=re.M)
    assert count >= 1
    with pytest.raises(parse.ParseError):
        parse.parse(benchmark, text)


#: What standard error may be full of: starts of what patterns look for, and reports of tasks.
FILLERS = [
    "mce: [Hardware Error]: ",
    "NVRM: Xid (PCI:",
    "Xid ",
    "uncorrected ",
    "EDAC ",
    "Detected 1 oom_kill",
    "srun: error: : ",
    "Caught signal ",
    "transport retry ",
    "temperature above threshold, cpu clock ",
    "Exited with exit code 1",
    *(f"plumbline-task 0 a {cpus} 0 - - 0 -\n" for cpus in ("0-65535", "0-65535," * 99 + "1")),
    *(f"plumbline-{what}\n" for what in ("node a cores 0-65535", "host a kernel 6.1", "task")),
    "1",
    " ",
    "\n",
]


@pytest.mark.parametrize("filler", FILLERS)
def test_time_and_memory_of_standard_error(filler: str) -> None:
    text = filler * (2**20 // len(filler)) + "\n"
    with bounded(PATIENCE * SECONDS):
        states.of_stderr([("sample-0.err", text)], states.patterns(paths.reference()))
        last_line(text)
        proof.host_facts(text)
        for benchmark in parse.BENCHMARKS:
            parse.check_stderr(benchmark, text)
        for read in (proof.read_tasks, lambda text: [*read_nodes(text)]):
            with contextlib.suppress(BindingMismatch):
                read(text)


def test_time_and_memory_of_what_tasks_and_nodes_report() -> None:
    """Each a few bytes that stand for many."""
    hosts = "".join(f"plumbline-node h{n} cores 0-65535\n" for n in range(30_000))
    groups = " ".join(f"0-{n}" for n in range(1, 65536))
    gpus = f"plumbline-task 0 a 0 0 - {'0,' * 2**18}0 0 {'b' * 2**19}\n"
    with bounded(PATIENCE * SECONDS):
        ((alike, _),) = read_nodes(hosts)
        assert len(alike) == 30_000
        with pytest.raises(BindingMismatch) as of_node:
            next(read_nodes(f"plumbline-node a cores {groups}\n"))
        with pytest.raises(BindingMismatch) as of_task:
            proof.read_tasks(gpus)
    assert of_node.value.code == of_task.value.code == "proof.unreadable"


def test_time_of_listed_nodes(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(150_000)]
    (tmp_path / samples.NODES).write_text("\n".join(names))
    with bounded(PATIENCE * SECONDS):
        assert samples.nodes_of_job(tmp_path) == names


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
    proof.prove(layout, proof.read_tasks(STDERR))
    rng = random.Random(f"{SEED} binding")
    tried = refused = 0
    for number in range(4000):
        text = mutated(rng, STDERR, "plumbline-task", STDERR)
        tried += 1
        try:
            for host, facts in proof.host_facts(text).items():
                assert host in text, host
                assert all(key in text and value in text for key, value in facts.items()), facts
            tasks = proof.read_tasks(text)
            check_tasks(tasks, text)
            proof.prove(layout, tasks)
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


def check_tasks(tasks: list[TaskReport], text: str) -> None:
    assert [task.rank for task in tasks] == sorted(task.rank for task in tasks)
    for task in tasks:
        assert task.host in text, task
        assert task.cpus in text, task


def test_the_page_of_the_bench_is_rendered_from_its_figures() -> None:
    from bench import DOCS
    from bench import fuzz as bench_fuzz

    figures = json.loads((DOCS / "parsing-speed.json").read_text())
    assert bench_fuzz.render(figures) == (DOCS / "parsing-speed.md").read_text()
    assert sum(found["tried"] for found in figures["parsers"].values()) >= 1_000_000
    assert all(found["slowest"] <= SECONDS for found in figures["parsers"].values())
