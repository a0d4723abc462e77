"""The samples of a test case: the loop in its job script, and what that leaves to read.

Every sample is one complete run of the program for every layout. Each run has its own output,
``sample-<run>.out`` and ``.err``; its exit code, start and end stand in ``samples.txt``. A run that
fails ends the job. Knows nothing of ReFrame.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.core.errors import Coded
from plumbline.parse import outputs
from plumbline.placement.binding import Binding, OnPair
from plumbline.placement.placement import Layout

#: File that tells of each run: its name, exit code, start and end (seconds since the epoch).
ENDS = "samples.txt"

#: File with the names of the job's nodes, where the job tells them apart itself.
NODES = "nodes.txt"


#: Rounds of pairs of nodes, by their places in the job's list of nodes.
Rounds = Sequence[Sequence[tuple[int, int]]]


class SampleError(Coded):
    """What the job left cannot be read."""


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
        """Its output where each task has one of its own."""
        return f"sample-{self.name}.{rank}.out"


@dataclass(frozen=True)
class Loop:
    """The parts of a job script around the launcher's command.

    :ivar before: what stands before it.
    :ivar words: what stands between ``./task.sh`` and the program, as the shell reads it.
    :ivar redirections: what stands after the program's arguments.
    :ivar after: what stands after it.
    """

    before: list[str]
    words: list[str]
    redirections: list[str]
    after: list[str]


def runs(layouts: Sequence[Layout], count: int) -> Iterator[Run]:
    """Every run of a job, in order."""
    for sample in range(count):
        for layout in layouts:
            several = len(layouts) > 1
            yield Run(sample, layout, f"{sample}-{layout.at[0]}" if several else str(sample))


def loop(
    layouts: Sequence[Layout],
    bindings: Sequence[Binding],
    count: int,
    warmups: int,
    before_sample: Sequence[str] = (),
    after_sample: Sequence[str] = (),
    output_per_task: bool = False,
) -> Loop:
    """The loop over samples, and over layouts where there are several.

    :arg before_sample: shell commands before each run, and ``after_sample`` after it.
    """
    before = [f"for sample in $(seq 0 {count - 1}); do  # {warmups} to warm up"]
    done = ["done"]
    if len(layouts) == 1:
        (binding,) = bindings
        run, words = "$sample", _quoted(binding.task)
    else:
        names = [layout.at[0] for layout in layouts]
        before += [f"for at in {' '.join(names)}; do", "case $at in"]
        for name, binding in zip(names, bindings, strict=True):
            exports = [f"export {key}={shlex.quote(v)};" for key, v in binding.env_vars.items()]
            before.append(
                " ".join(
                    [
                        f"{name})",
                        *exports,
                        f"binding=({' '.join(_quoted(binding.options))})",
                        f"words=({' '.join(_quoted(binding.task))}) ;;",
                    ]
                )
            )
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


def rounds_loop(
    rounds: Rounds,
    nodes: int,
    listed: str,
    pair: OnPair,
    task: Sequence[str],
    before_sample: Sequence[str] = (),
    after_sample: Sequence[str] = (),
    note: str = "",
) -> Loop:
    """The loop over rounds of pairs of nodes, all pairs of a round at once.

    A round ends with its last pair; a run that failed fails the job after the last round, so that
    it is known which pairs fail.

    :arg nodes: how many the job has.
    :arg listed: shell words that print the job's nodes, one a line.
    :arg task: words between ``./task.sh`` and the program.
    :arg note: what the script says of the rounds.
    """
    cases = [
        f"{number}) pairs='{' '.join(f'{one}-{other}' for one, other in pairs)}' ;;"
        for number, pairs in enumerate(rounds)
    ]
    return Loop(
        [
            f"mapfile -t nodes < <({listed})",
            f"printf '%s\\n' \"${{nodes[@]}}\" >{NODES}",
            f'[ ${{#nodes[@]}} = {nodes} ] || {{ echo "${{#nodes[@]}} nodes are listed of the job, '
            f'not {nodes}: ${{nodes[*]}}" >&2; exit 1; }}',
            "failed=0",
            f"for sample in $(seq 0 {len(rounds) - 1}); do  # {note}",
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
            "done",
            "[ $failed = 0 ] || exit $failed",
        ],
    )


def pair_runs(
    rounds: Rounds, nodes: Sequence[str], layout: Layout, count: int = 1
) -> Iterator[Run]:
    """Every run of :func:`rounds_loop`, in order of the rounds.

    :arg rounds: those of all samples.
    :arg count: how many samples they make, each as many rounds.
    """
    each = len(rounds) // count
    for number, pairs in enumerate(rounds):
        for one, other in pairs:
            yield Run(number // each, layout, f"{number}-{nodes[one]}:{nodes[other]}")


def nodes_of_job(folder: Path) -> list[str]:
    """The job's nodes as :func:`rounds_loop` listed them; empty where it did not.

    :raises SampleError: if one is listed twice.
    """
    try:
        found = outputs.read(folder / NODES).split()
    except FileNotFoundError:
        return []
    except OSError as err:
        raise SampleError(f"{NODES}: {err.strerror}", code="output.file-unreadable") from None
    except ValueError as err:
        raise SampleError(f"{NODES}: {err}", code="output.file-garbled") from None
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice:
        raise SampleError(f"{NODES}: {twice[0]} is listed twice", code="output.file-garbled")
    return found


def options(bindings: Sequence[Binding]) -> list[str]:
    """The launcher's options, as the shell reads them; :func:`loop` sets them where each layout
    has its own."""
    return _quoted(bindings[0].options) if len(bindings) == 1 else ['"${binding[@]}"']


def _quoted(words: Sequence[str]) -> list[str]:
    return [shlex.quote(word) for word in words]


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: its exit code, and when it began and ended by its node's clock (seconds
    since the epoch)."""

    status: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


def ends(folder: Path) -> dict[str, RunEnd]:
    """How each run that ended did, by its name; empty where none has.

    :raises SampleError: if the file is garbled or names a run twice.
    """
    found: dict[str, RunEnd] = {}
    try:
        for line in outputs.read(folder / ENDS).splitlines():
            name, status, began, done = line.split()
            if name in found:
                raise ValueError(f"run {name} stands twice")
            end = RunEnd(int(status), float(began), float(done))
            if not math.isfinite(end.seconds):
                raise ValueError(f"run {name} took {end.seconds} seconds")
            found[name] = end
    except FileNotFoundError:
        return {}
    except OSError as err:
        raise SampleError(f"{ENDS}: {err.strerror}", code="output.file-unreadable") from None
    except ValueError as err:
        raise SampleError(f"{ENDS}: {err}", code="output.file-garbled") from None
    return found


#: Seconds by which a node's clock may differ from that of the host that submits. MUNGE, by which
#: Slurm, Flux and PBS know their users, refuses a credential that is 300 s old (MUNGE_DEFAULT_TTL
#: in its munge_defs.h): jobs do not start on nodes whose clocks differ by more.
CLOCKS = 300

#: Seconds by which two measurements of the same time may differ by rounding and small clock steps.
_ROUNDING = 5


def hold_within(ended: dict[str, RunEnd], since: float, until: float, jumped: float = 0) -> None:
    """Refuses runs that are not of this job: a file that an earlier job left, or a copied one.

    Two comparisons: by the clock of the host that submitted, within :data:`CLOCKS`; and by
    durations, which no difference between clocks changes.

    :arg since: when the job was submitted, and ``until`` when it was seen to have ended, both by
        the submitting host's clock (seconds since the epoch).
    :arg jumped: seconds by which that clock was set meanwhile.
    :raises SampleError: naming the run.
    """
    slack = CLOCKS + abs(jumped)
    for name, end in ended.items():
        for what, at in (("began", end.began), ("ended", end.ended)):
            early, late = since - at, at - until
            if max(early, late) > slack:
                when = "before the job was submitted" if early > 0 else "after the job had ended"
                raise SampleError(
                    f"{ENDS}: run {name} {what} {max(early, late):.0f} s {when}: the file is not "
                    f"of this job, or the node's clock is wrong by more than {CLOCKS} s",
                    code="output.other-job",
                )
    if not ended:
        return
    span = max(end.ended for end in ended.values()) - min(end.began for end in ended.values())
    most = until - since + _ROUNDING + abs(jumped)
    if span > most:
        raise SampleError(
            f"{ENDS}: its runs span {span:.0f} s, and the job had {most:.0f} s in all: runs of "
            f"another job are in it",
            code="output.other-job",
        )
