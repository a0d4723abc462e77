"""The samples of a test case: the loop in its job script, and the files that this writes.

Every sample is one complete run of the program for every layout. Each run has its own output,
``sample-<run>.out`` and ``.err``; ``samples.txt`` has its exit code, start and end. A run that
fails ends the job. Independent of ReFrame.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.core.errors import Coded
from plumbline.parse import outputs
from plumbline.placement.binding import Binding, PairBinding
from plumbline.placement.placement import Layout

#: File with name, exit code, start and end of each run (seconds since the epoch).
ENDS = "samples.txt"

#: Ends a run that prints no value, and the file in which it lists such runs.
STARTED = Path(__file__).with_name("started.sh")
NOT_STARTED = "not-started.txt"

#: File with the names of the job's nodes, of a job that runs pairs of them.
NODES = "nodes.txt"

#: Rounds of pairs of nodes, as positions in the job's list of nodes.
Rounds = Sequence[Sequence[tuple[int, int]]]


class SampleError(Coded):
    """A file of the job cannot be read."""


@dataclass(frozen=True)
class Run:
    """One run of the program: of which sample, and of which layout."""

    sample: int
    layout: Layout
    name: str

    @property
    def out(self) -> str:
        return f"sample-{self.name}.out"

    @property
    def err(self) -> str:
        return f"sample-{self.name}.err"

    def out_of_rank(self, rank: int) -> str:
        """Return the output of one task, of a program whose tasks print one each."""
        return f"sample-{self.name}.{rank}.out"


@dataclass(frozen=True)
class Loop:
    """The parts of a job script around the launcher's command.

    :ivar before: lines before it.
    :ivar words: between the sample, the first word after ``./task.sh``, and the program, as the
        shell reads them.
    :ivar redirections: after the program's arguments.
    :ivar after: lines after it.
    """

    before: list[str]
    words: list[str]
    redirections: list[str]
    after: list[str]
    sample: str = "$sample"


def runs(layouts: Sequence[Layout], count: int) -> Iterator[Run]:
    """Yield every run of a job, in order."""
    several = len(layouts) > 1
    for sample in range(count):
        for layout in layouts:
            yield Run(sample, layout, f"{sample}-{layout.locations[0]}" if several else str(sample))


def loop(
    layouts: Sequence[Layout],
    bindings: Sequence[Binding],
    count: int,
    warmups: int,
    before_sample: Sequence[str] = (),
    after_sample: Sequence[str] = (),
    output_per_task: bool = False,
) -> Loop:
    """Return the loop over samples, and over layouts if there are several.

    :arg before_sample: shell commands before each run, and ``after_sample`` after it.
    """
    before = [f"for sample in $(seq 0 {count - 1}); do  # {warmups} to warm up"]
    done = ["done"]
    if len(layouts) == 1:
        (binding,) = bindings
        run, words = "$sample", _quoted(binding.task)
    else:
        names = [layout.locations[0] for layout in layouts]
        before += [f"for at in {' '.join(names)}; do", "case $at in"]
        for name, binding in zip(names, bindings, strict=True):
            exports = [f"export {key}={shlex.quote(v)};" for key, v in binding.env_vars.items()]
            arrays = [
                f"binding=({' '.join(_quoted(binding.options))})",
                f"words=({' '.join(_quoted(binding.task))}) ;;",
            ]
            before.append(" ".join([f"{name})", *exports, *arrays]))
        before.append("esac")
        done = ["done", "done"]
        run, words = "$sample-$at", ['"${words[@]}"']
    if output_per_task:
        words = ["PLUMBLINE_OUTPUT=sample-$run", *words]
    return Loop(
        [*before, f"run={run}", *before_sample, "began=$(date +%s.%N)"],
        words,
        [">sample-$run.out", "2>sample-$run.err"],
        [
            "status=$?; ended=$(date +%s.%N)",
            *after_sample,
            f'echo "$run $status $began $ended" >>{ENDS}',
            "[ $status = 0 ] || exit $status",
            *done,
        ],
    )


def watch(seconds: int) -> list[str]:
    """Return the shell commands before and after a run that end it if it prints no value.

    :arg seconds: after which.
    """
    # In the background command itself, BASHPID would be that of this command.
    start = f'shell=$BASHPID; ./{STARTED.name} "$run" {seconds} $shell & watch=$!'
    return [start, "kill $watch 2>/dev/null"]


def not_started(folder: Path) -> list[str]:
    """Return the names of the runs that were ended since they printed no value.

    :raises SampleError: if the file cannot be read.
    """
    with _readable(NOT_STARTED):
        return outputs.read(folder / NOT_STARTED).split()
    return []


def rounds_loop(
    rounds: Rounds,
    nodes: int,
    listed: str,
    pair: PairBinding,
    task: Sequence[str],
    before_sample: Sequence[str] = (),
    after_sample: Sequence[str] = (),
    note: str = "",
) -> Loop:
    """Return the loop over rounds of pairs of nodes; all pairs of a round run at once.

    A round ends with its last pair. A run that fails makes the job fail after the last round, so
    that all failing pairs are known. But runs that were ended since they printed no value take
    long: the second round with one shows which node it is, if it is one, and is the last.

    :arg nodes: the number of nodes of the job.
    :arg listed: shell command that prints the job's nodes, one a line.
    :arg task: words between ``./task.sh`` and the program.
    :arg note: comment in the script about the rounds.
    """
    seen: set[int] = set()
    cases = []
    for number, pairs in enumerate(rounds):
        # A node that the first round leaves idle reports its facts in a later one.
        facts = " facts=0" if number and not seen.issuperset(itertools.chain(*pairs)) else ""
        seen.update(itertools.chain(*pairs))
        listed_pairs = " ".join(f"{first}-{second}" for first, second in pairs)
        cases.append(f"{number}) pairs='{listed_pairs}'{facts} ;;")
    return Loop(
        [
            f"mapfile -t nodes < <({listed})",
            f"printf '%s\\n' \"${{nodes[@]}}\" >{NODES}",
            f'[ ${{#nodes[@]}} = {nodes} ] || {{ echo "${{#nodes[@]}} nodes are listed of the job, '
            f'not {nodes}: ${{nodes[*]}}" >&2; exit 1; }}',
            "failed=0",
            f"for sample in $(seq 0 {len(rounds) - 1}); do  # {note}",
            "facts=$sample",
            "case $sample in",
            *cases,
            "esac",
            "started=()",
            "for pair in $pairs; do",
            "(",
            "first=${nodes[${pair%-*}]} second=${nodes[${pair#*-}]}",
            "run=$sample-$first:$second",
            *before_sample,
            *pair.before,
            "began=$(date +%s.%N)",
        ],
        _quoted(task),
        ['>"sample-$run.out"', '2>"sample-$run.err"'],
        [
            "status=$?; ended=$(date +%s.%N)",
            *after_sample,
            f'echo "$run $status $began $ended" >>{ENDS}',
            "exit $status",
            ") &",
            "started+=($!)",
            "done",
            'for each in "${started[@]}"; do wait $each || failed=$?; done',
            f'[ "$(cut -d- -f1 {NOT_STARTED} 2>/dev/null | sort -u | wc -l)" -lt '
            f"{min(nodes - 1, 2)} ] || break",
            "done",
            "[ $failed = 0 ] || exit $failed",
        ],
        sample="$facts",
    )


def pair_runs(
    rounds: Rounds, nodes: Sequence[str], layout: Layout, count: int = 1
) -> Iterator[Run]:
    """Yield every run of :func:`rounds_loop`, in order of the rounds.

    :arg rounds: those of all samples.
    :arg count: the number of samples, each of as many rounds.
    """
    each = len(rounds) // count
    for number, pairs in enumerate(rounds):
        for one, other in pairs:
            yield Run(number // each, layout, f"{number}-{nodes[one]}:{nodes[other]}")


def nodes_of_job(folder: Path) -> list[str]:
    """Return the job's nodes as :func:`rounds_loop` listed them; empty if it did not.

    :raises SampleError: if one is listed twice.
    """
    with _readable(NODES):
        found = outputs.read(folder / NODES).split()
        twice = [name for name, count in Counter(found).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]} is listed twice")
        return found
    return []


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """Suppress that a file does not exist, and convert other errors of reading it.

    :raises SampleError: with the file's name.
    """
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as err:
        raise SampleError(f"{name}: {err.strerror}", code="output.file-unreadable") from None
    except ValueError as err:
        raise SampleError(f"{name}: {err}", code="output.file-garbled") from None


def options(bindings: Sequence[Binding]) -> list[str]:
    """Return the launcher's options, as the shell reads them; if each layout has its own,
    :func:`loop` sets them."""
    return _quoted(bindings[0].options) if len(bindings) == 1 else ['"${binding[@]}"']


def _quoted(words: Sequence[str]) -> list[str]:
    return [shlex.quote(word) for word in words]


@dataclass(frozen=True)
class RunEnd:
    """The exit code of a run, and its start and end by its node's clock (seconds since the
    epoch)."""

    status: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """The time that it took."""
        return self.ended - self.began


def ends(folder: Path) -> dict[str, RunEnd]:
    """Return how each run ended, by its name; empty if none has.

    :raises SampleError: if the file is garbled or has a run twice.
    """
    found: dict[str, RunEnd] = {}
    with _readable(ENDS):
        for line in outputs.read(folder / ENDS).splitlines():
            name, status, began, done = line.split()
            if name in found:
                raise SampleError(
                    f"{ENDS}: run {name} is listed twice: the scheduler started the job again: "
                    f"forbid that by its option in `access` (docs/systems.md)",
                    code="job.restarted",
                )
            end = RunEnd(int(status), float(began), float(done))
            if not math.isfinite(end.seconds):
                raise ValueError(f"run {name} took {end.seconds} seconds")
            found[name] = end
    return found


#: Seconds by which a node's clock may differ from that of the submitting host. MUNGE, by which
#: Slurm, Flux and PBS authenticate users, refuses a credential that is 300 s old (MUNGE_DEFAULT_TTL
#: in its munge_defs.h): jobs do not start on nodes whose clocks differ by more.
CLOCKS = 300

#: Seconds by which two measurements of the same time may differ by rounding and small clock steps.
_ROUNDING = 5


def check_times(ended: dict[str, RunEnd], since: float, until: float, jumped: float = 0) -> None:
    """Check that runs are of this job, and not in a file of an earlier job or a copied one.

    The times are compared by the submitting host's clock, within :data:`CLOCKS`, and by durations,
    which do not depend on the difference between clocks.

    :arg since: when the job was submitted, and ``until`` when its end was found, both by the
        submitting host's clock (seconds since the epoch).
    :arg jumped: seconds by which that clock was set meanwhile.
    :raises SampleError: with the run.
    """
    slack = CLOCKS + abs(jumped)
    for name, end in ended.items():
        for what, moment in (("began", end.began), ("ended", end.ended)):
            early, late = since - moment, moment - until
            if max(early, late) > slack:
                when = "before the job was submitted" if early > 0 else "after the job had ended"
                raise SampleError(
                    f"{ENDS}: run {name} {what} {max(early, late):.0f} s {when}: the file is of "
                    f"another job, or the node's clock is wrong by more than {CLOCKS} s",
                    code="output.other-job",
                )
    if not ended:
        return
    span = max(end.ended for end in ended.values()) - min(end.began for end in ended.values())
    most = until - since + _ROUNDING + abs(jumped)
    if span > most:
        raise SampleError(
            f"{ENDS}: the runs span {span:.0f} s, and the job took {most:.0f} s at most: the file "
            f"has runs of another job",
            code="output.other-job",
        )
