"""A duet: two sides of one test case, measured run by run in one job.

ReFrame runs the case of side A. This module makes a second case of the same check for side B, which
is set up beside it and never submitted: each side has its own job script, as if it ran alone, and
the one job starts both and lets them take turns, A B B A. Each side has its own environment,
launcher, outputs and exit codes, and becomes a record of its own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reframe.core.exceptions import JobError, TaskExit
from reframe.core.runtime import runtime
from reframe.frontend.executors import RegressionTask, TaskEventListener, TestCase
from reframe.utility import nodelist_abbrev, nodelist_expand

from plumbline.check import outcomes, samples, tasks
from plumbline.check.record import DUET, SIDES
from plumbline.check.result import key_of, of_check
from plumbline.core.errors import Fault, WrongOption
from plumbline.core.text import pluralize, suggest
from plumbline.placement import proof
from plumbline.site import check_patches, job_patches
from plumbline.software import providers

#: Script of side A next to the job script, which starts both sides.
SCRIPT = "side-a.sh"
#: Exit code of a side that is not given its next turn, as the other side has ended early.
STOPPED = 75


@dataclass(frozen=True)
class Side:
    """What one side runs in: ``ENVIRONMENT[@FOLDER][:NODES]``.

    :ivar text: as on the command line, with the whole path of the folder.
    :ivar folder: where its programs are, instead of the environment's provider: a Spack view, or
        an install prefix.
    :ivar nodes: names of its nodes in the job; without them, those that the scheduler gives.
    """

    text: str
    environment: str
    folder: Path | None = None
    nodes: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, to_run: bool = True) -> Side:
        """Return a side of the command line.

        :arg to_run: whether its folder must exist.
        :raises Fault: if it has no environment, the folder does not exist, or the nodes are not a
            list of nodes.
        """
        rest, colon, listed = text.partition(":")
        environment, at, folder = rest.partition("@")
        if not environment or (at and not folder) or (colon and not listed):
            raise WrongOption(
                f"--duet {text!r}: write ENVIRONMENT, ENVIRONMENT@FOLDER or ENVIRONMENT:NODES"
            )
        if at and to_run and not Path(folder).is_dir():
            raise WrongOption(
                f"--duet {text}: there is no folder {folder}: name one that has the programs, such "
                f"as a Spack view or an install prefix"
            )
        try:
            nodes = tuple(dict.fromkeys(nodelist_expand(listed))) if listed else ()
        except ValueError:
            nodes = ("",)
        if not all(re.fullmatch(r"[A-Za-z0-9][\w.-]*", node, re.ASCII) for node in nodes):
            raise WrongOption(f"--duet {text}: {listed} is not a list of nodes such as n[1-4,7]")
        path = Path(folder).resolve() if at else None
        return cls(f"{environment}{at}{path or ''}{colon}{listed}", environment, path, nodes)

    def __str__(self) -> str:
        return self.text


def waiting(side: str) -> list[str]:
    """Return the shell command with which a side waits for its turn; none without a side."""
    wait = f'read -r plumbline_turn <"$PLUMBLINE_DUET/{side}"'
    return [f"{wait}; [ $plumbline_turn = go ] || exit {STOPPED}"] if side else []


def passing(side: str) -> list[str]:
    """Return the shell command with which a side ends its turn; none without a side."""
    return [f'echo "ran {side}" >"$PLUMBLINE_DUET/ended"'] if side else []


def order(samples: int, layouts: int) -> str:
    """Return the sides in the order of their turns: A B B A for each layout, so that a drift which
    is linear in time adds as much to one side as to the other.

    >>> order(4, 1)
    'abbaabba'
    """
    pairs = ("ab", "ba")
    return "".join(pairs[(n + at) % 2] for n in range(samples) for at in range(layouts))


def script(header: Iterable[str], turns: str, folder: Path) -> str:
    """Return the job script, which starts both sides and gives each its turns.

    A side that ends before it has had all of its turns ends the job. The job's exit code is that of
    the side that failed.

    :arg header: lines of the scheduler's options.
    :arg folder: stage folder of side B; the job starts in that of side A.
    """
    return "\n".join(
        [
            *header,
            "# Each side runs in the environment of its own script. Turns pass through FIFOs.",
            "PLUMBLINE_DUET=$(mktemp -d) || exit",
            "export PLUMBLINE_DUET",
            "trap 'rm -rf \"$PLUMBLINE_DUET\"' EXIT",
            'mkfifo "$PLUMBLINE_DUET"/{a,b,ended} || exit',
            'exec 3<>"$PLUMBLINE_DUET/a" 4<>"$PLUMBLINE_DUET/b" 5<>"$PLUMBLINE_DUET/ended"',
            "side() {  # side folder script",
            '    cd "$2" && "./$3" 3>&- 4>&- 5>&-',
            "    local status=$?",
            '    echo "over $1" >&5',
            "    return $status",
            "}",
            f"side a . {SCRIPT} & a=$!",
            f"side b {shlex.quote(str(folder))} rfm_job.sh "
            f">{shlex.quote(str(folder))}/rfm_job.out 2>{shlex.quote(str(folder))}/rfm_job.err "
            f"& b=$!",
            "over=",
            f"for side in {' '.join(turns)}; do",
            "    [[ $over != *$side* ]] || break",
            '    echo go >"$PLUMBLINE_DUET/$side"',
            "    while read -r what who <&5; do",
            "        [ $what = ran ] || over+=$who",
            "        [ $who != $side ] || break",
            "    done",
            "    [ $what = ran ] || break",
            "done",
            "echo stop >&3; echo stop >&4",
            "wait $a; status=$?",
            "wait $b; other=$?",
            f"[ $status != {STOPPED} ] || [ $other = 0 ] || status=$other",
            "exit $((status ? status : other))",
            "",
        ]
    )


class Duet:
    """The two sides of a session, and its pairs of test cases.

    :ivar sides: side of the record -> what it runs in.
    :ivar others: name of each case of side A -> the case of side B, to be cloned for each attempt.
    """

    def __init__(self, first: str, second: str):
        self.sides = dict(zip(SIDES, (Side.of(first), Side.of(second)), strict=True))
        self.others: dict[str, TestCase] = {}
        self._tasks: dict[str, RegressionTask] = {}
        self._listeners: list[TaskEventListener] = []
        #: Stage folder of a side -> name and stage folder of the other side.
        self._opposite: dict[str, tuple[str, str]] = {}

    @property
    def extras(self) -> dict[str, str]:
        """What a session's extras have about both sides."""
        return {f"{DUET}-{name}": str(side) for name, side in self.sides.items()}

    def pair(self, testcases: list[TestCase], listener: TaskEventListener) -> list[TestCase]:
        """Return the cases of side A, and keep the case of side B of each.

        :arg listener: is notified of the cases of side B.
        :raises Fault: if a case is not one of Plumbline's, or a side has no case of a check.
        """
        self._listeners = [listener]
        found: dict[tuple[str, str], dict[str, TestCase]] = {}
        for case in testcases:
            place = case.check.display_name, case.partition.fullname
            found.setdefault(place, {})[case.environ.name] = case
        first, second = (side.environment for side in self.sides.values())
        chosen = []
        for (name, partition), of_environment in found.items():
            for environment in (first, second):
                if environment not in of_environment:
                    raise Fault(
                        f"--duet: {name} does not run in environment {environment!r} of "
                        f"{partition}; {suggest(environment, of_environment)}",
                        code="duet.no-case",
                    )
            case = of_environment[first]
            if of_check(case.check) is None:
                raise Fault(
                    f"--duet: {name} is a plain ReFrame check, whose runs cannot take turns: "
                    f"derive it from plumbline's Benchmark (docs/checks.md)",
                    code="duet.not-possible",
                )
            other = copy.deepcopy(of_environment[second].check)
            check_patches.rename(other, f"{other.hashcode}b")
            case.check.duet_side, other.duet_side = SIDES
            self.others[key_of(case)] = TestCase(
                other, case.partition, of_environment[second].environ
            )
            chosen.append(case)
        return chosen

    def set_up(self, check) -> None:
        """Set up the case of side B, write its script, and have the job of side A start both.

        :arg check: of side A, when its own script is about to be written.
        :raises Skip: if side B cannot run.
        """
        key = key_of((check, check.current_partition, check.current_environ))
        task = self._tasks[key] = self._new_task(key)
        try:
            task.setup(
                task.testcase.partition,
                task.testcase.environ,
                sched_flex_alloc_nodes=check.job.sched_flex_alloc_nodes,
                sched_options=check.job.cli_options,
            )
            other = task.check
            turns = [
                order(of.num_warmups + of.num_samples, len(of.layouts)) for of in (check, other)
            ]
            if turns[0] != turns[1]:
                raise outcomes.Skip(
                    f"the sides do not have the same runs ({len(turns[0]) // 2} and "
                    f"{len(turns[1]) // 2}), so they cannot take turns: compare sessions instead",
                    code="duet.not-possible",
                )
            job_patches.at_submission(other.job, lambda: False)
            task.run()
        except TaskExit:
            raise outcomes.Skip(
                f"side b, {self.sides['b']}: {task.exc_info[1]}", outcomes.code_of(task)
            ) from None
        check.time_limit += other.time_limit
        self._opposite[check.stagedir] = SIDES[1], other.stagedir
        self._opposite[other.stagedir] = SIDES[0], check.stagedir

        def start_both() -> bool:
            own = Path(check.stagedir, check.job.script_filename)
            lines = own.read_text().splitlines()
            end = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
            own.rename(own.with_name(SCRIPT))
            header = [*lines[:end], *self._request(check)]
            own.write_text(script(header, turns[0], Path(other.stagedir)))
            own.chmod(0o755)
            return True

        job_patches.at_submission(check.job, start_both)

    def failure(self, check) -> str:
        """Return how the other side failed, or an empty text."""
        side, folder = self._opposite[check.stagedir]
        with contextlib.suppress(samples.SampleError):
            for run, end in samples.ends(Path(folder)).items():
                if end.status:
                    return f"side {side}, {self.sides[side]}, failed in run {run}"
        return ""

    def nodes_of(self, check) -> tuple[str, ...]:
        """Return the nodes that a check's side has to itself; nothing if it has none.

        :raises Skip: if they are not as many as it needs, or cannot be had.
        """
        side = self.sides[check.duet_side]
        if not side.nodes:
            return ()
        scheduler = check.current_partition.scheduler.registered_name
        launcher = check.job.launcher.registered_name
        if scheduler not in ("slurm", "squeue") or launcher != "srun":
            raise outcomes.Skip(
                f"side {check.duet_side}, {side}: nodes of a side need Slurm and srun; this is "
                f"{scheduler} and {launcher}",
                code="duet.not-possible",
            )
        if len(side.nodes) != check.layout.num_nodes:
            raise outcomes.Skip(
                f"side {check.duet_side}, {side}: the test case takes {check.layout.num_nodes} "
                f"nodes: list as many, or set -S nodes={len(side.nodes)} if its placement allows "
                f"that",
                code="duet.not-possible",
            )
        return side.nodes

    @property
    def all_nodes(self) -> list[str]:
        """The nodes of both sides."""
        return [*dict.fromkeys(node for side in self.sides.values() for node in side.nodes)]

    def _request(self, check) -> list[str]:
        """Return the options of a Slurm job with the nodes of both sides; the last ones count."""
        if not (nodes := self.all_nodes):
            return []
        tasks = len(nodes) * check.layout.num_tasks_per_node
        listed = nodelist_abbrev(nodes)
        options = f"--nodes={len(nodes)}", f"--ntasks={tasks}", f"--nodelist={listed}"
        return [f"#SBATCH {option}" for option in options]

    def _new_task(self, key: str) -> RegressionTask:
        """Return a task for the case of side B of another attempt."""
        task = RegressionTask(self.others[key].clone(), self._listeners)
        task.testcase.prepare()
        return task

    def finish(self, task: RegressionTask) -> None:
        """Judge side B when side A has ended, or end it as side A did before it ran."""
        key = key_of(task.testcase)
        if key not in self.others:
            return
        other = self._tasks.pop(key, None)
        if other and (other.skipped or other.failed or other.aborted or other.xfailed):
            return
        other = other or self._new_task(key)
        if task.aborted:
            other.abort(task.exc_info[1].__cause__)
        elif task.check.job is None or task.check.job.jobid is None:
            why = outcomes.Skip(
                f"side a, {self.sides['a']}: {task.exc_info[1]}", outcomes.code_of(task)
            )
            other.skip((type(why), why, None))
        else:
            job_patches.share_job(other.check, task.check)
            if isinstance(task.exc_info[1], JobError):
                # ReFrame raises the error of a job once.
                other.fail(task.exc_info)
                return
            with contextlib.suppress(TaskExit):
                for phase in (other.run_wait, other.sanity, other.performance):
                    phase()
                other.finalize()
                other.cleanup(not runtime().get_option("general/0/keep_stage_files"))


#: The duet of this process, if it runs one.
current: Duet | None = None


def begin(first: str, second: str) -> Duet:
    """Have the session of this process measure two sides.

    :raises Fault: if one is not a side, or only one has nodes of its own.
    """
    global current
    made = Duet(first, second)
    if len({bool(side.nodes) for side in made.sides.values()}) > 1:
        raise WrongOption(f"--duet {first} {second}: name the nodes of both sides, or of none")
    current = made
    return current


def program_of(check) -> providers.Program | None:
    """Return the program of a check's side, if the side names the folder that it is in.

    :raises NotProvided: if the folder does not have it.
    """
    if not (current and check.duet_side):
        return None
    folder = current.sides[check.duet_side].folder
    if folder is None:
        return None
    place = check.current_partition, check.current_environ
    manager = tasks.configured_manager(*place)
    load = functools.partial(tasks.shell_of, *place)
    return providers.find_in(folder, check.program, load, manager)


def launcher_options(check) -> list[str]:
    """Return the launcher's options that keep a check's side to its own nodes.

    :raises Skip: if it cannot have them.
    """
    nodes = current.nodes_of(check) if current and check.duet_side else ()
    return [f"--nodelist={','.join(nodes)}"] if nodes else []


def check_ends(check, ended: Mapping[str, samples.RunEnd]) -> None:
    """Check that a side was not stopped because the other one failed.

    :raises Invalid: if it was.
    """
    if not current or not check.duet_side or any(end.status for end in ended.values()):
        return
    stopped = len(ended) < sum(1 for _ in check.runs())
    if stopped and (why := current.failure(check)):
        raise outcomes.Invalid(
            f"stopped after {pluralize(len(ended), 'run')}: {why}", code="duet.other-side-failed"
        )


def prove(check, seen: list[proof.TaskReport]) -> None:
    """Check that the tasks of a side ran on its own nodes.

    :raises BindingMismatch: if one did not.
    """
    if current and check.duet_side and (nodes := current.sides[check.duet_side].nodes):
        proof.prove_nodes(nodes, seen, current.all_nodes)
