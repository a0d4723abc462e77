"""The output of a job: how its runs ended, and the figures that they printed."""

from __future__ import annotations

import contextlib
import math
import numbers
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from reframe.utility import nodelist_abbrev

from plumbline import parse
from plumbline.check import network, outcomes, samples, states, throttling
from plumbline.check.parameters import references
from plumbline.check.result import CaseResult
from plumbline.check.samples import Run
from plumbline.core import paths, units
from plumbline.core.text import shorten
from plumbline.parse import Figure, Fom, Output, outputs
from plumbline.placement import proof
from plumbline.placement.node import (
    NodeDescription,
    TopologyMismatch,
    compare_node,
    read_nodes,
)
from plumbline.placement.placement import Layout

#: Possible causes of another number of tasks than started, as messages have them.
OTHER_RUN = "the output is that of another run"
FEWER_TASKS = "the program takes fewer tasks than it is given"

#: What srun prints if it is ended before slurmctld gave it a job step, and what the message adds.
#: Seen of Slurm 22.05: srun waits for 120 s where its step is refused once, as it is of a job that
#: ran while slurmctld was restarted.
_PENDING_STEP = "Cancelled pending job step"
STEP_NOT_CREATED = (
    ", as Slurm did not create the job step: slurmctld had just been restarted, or does not reach "
    "the nodes"
)

#: Characters of a line that a message quotes.
_LONGEST = 300


def stderr_of(path: Path) -> str:
    """Return a file of standard error; empty if there is none.

    :raises Invalid: if it cannot be read, or is too large.
    """
    try:
        return outputs.read(path, errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as err:
        raise unreadable(err) from None


def unreadable(err: OSError) -> outcomes.Invalid:
    """Return the error of an output file that cannot be read."""
    message = f"{Path(err.filename).name}: {err.strerror}" if err.filename else str(err)
    return outcomes.Invalid(message, code="output.file-unreadable")


def last_line(stderr: str) -> str:
    """Return the last line that a program wrote, or its start, after a colon."""
    lines = [
        line.strip()
        for line in stderr.splitlines()
        if not line.startswith("plumbline-")
        and re.search(r"\w", line)
        # srun(1) writes this after the program's own lines.
        and not re.match(r"srun: error: .*Exited with exit code \d+$", line)
    ]
    return f": {lines[-1][:_LONGEST]}" if lines else ""


def notices(folder: Path, stderr: str) -> list[states.Notice]:
    """Return the warnings in the standard error of a job and of its runs, see ``stderr.yaml``."""
    files = [folder / stderr, *sorted(folder.glob("sample-*.err"))]
    texts = [(path.name, stderr_of(path)) for path in files]
    return states.of_stderr(texts, states.patterns(paths.reference()))


def run_ends(folder: Path, submitted: tuple[float, float]) -> dict[str, samples.RunEnd]:
    """Return how each run of a job ended.

    :arg submitted: when the job was submitted, by wall clock and by monotonic clock.
    :raises Invalid: if the file that has this is garbled, or of another job.
    """
    try:
        ended = samples.ends(folder)
        since, ticks = submitted
        now, passed = time.time(), time.monotonic() - ticks
        samples.check_times(ended, since, now, jumped=now - since - passed)
    except samples.SampleError as err:
        raise outcomes.Invalid(str(err), code=err.code) from None
    return ended


def check_started(folder: Path, layout: Layout, seconds: int, fabric: Sequence[str]) -> None:
    """Check that no run was ended since its start made no progress.

    :arg seconds: that it had. :arg fabric: the interfaces of the fabric, if stated.
    :raises Invalid: with the run, the tasks and nodes that started, and interfaces that are down.
    """
    try:
        runs = samples.not_started(folder)
    except samples.SampleError as err:
        raise outcomes.Invalid(str(err), code=err.code) from None
    if not runs:
        return
    stderr = stderr_of(folder / f"sample-{runs[0]}.err")
    seen = proof.read_tasks(stderr)
    nodes = list(dict.fromkeys(task.host for task in seen))
    on = nodelist_abbrev(nodes) if nodes else "no node"
    if len(seen) < layout.num_tasks:
        step = f"{len(seen)} of {layout.num_tasks} tasks started, on {on}"
        step += STEP_NOT_CREATED if _PENDING_STEP in stderr else ""
    else:
        step = (
            f"all {len(seen)} tasks started, on {on}, and MPI_Init, the start of NCCL or the first "
            f"message hangs"
        )
    listed = f"runs {shorten(runs)}" if len(runs) > 1 else f"run {runs[0]}"
    raise outcomes.Invalid(
        f"{listed} printed no value within {seconds} s and had to be ended{common_node(runs)}: "
        f"{step}{links_down(folder, fabric)}",
        code="output.not-started",
    )


def common_node(runs: Iterable[str]) -> str:
    """Return a text about the one node that several runs between two nodes have in common, for the
    middle of a message.

    :arg runs: their names, such as ``3-n1:n7``.
    """
    pairs = {name.partition("-")[2] for name in runs}
    common = set.intersection(*(set(pair.split(":")) for pair in pairs))
    return f"; {common.pop()} is in all of them" if len(pairs) > 1 and len(common) == 1 else ""


def links_down(folder: Path, fabric: Sequence[str]) -> str:
    """Return a text about the interfaces whose link is down, for the end of a message.

    :arg fabric: the interfaces of the fabric, if stated.
    """
    hosts: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("sample-*.err")):
        hosts |= proof.host_facts(stderr_of(path))
    return "".join(f"; {text}" for text in network.down(hosts, fabric))


def check_end(
    run: Run,
    ended: Mapping[str, samples.RunEnd],
    stderr: str,
    links: Callable[[], str] = str,
) -> None:
    """Check that a run ended with exit code 0.

    :arg links: returns the text of :func:`links_down`, which reads the output of all runs.
    :raises Invalid: if it did not.
    """
    if run.name not in ended:
        raise outcomes.Invalid(
            f"sample {run.name} did not finish: it was killed or hung{last_line(stderr)}",
            code="output.sample-unfinished",
        )
    if status := ended[run.name].status:
        raise outcomes.Invalid(
            f"sample {run.name} ended with exit code {status}{last_line(stderr)}"
            f"{misplaced(run.layout, stderr)}{throttling.restricted(stderr)}{links()}",
            code="output.exit-code",
        )


def misplaced(layout: Layout, stderr: str) -> str:
    """Return, for a message, how the tasks of a failed run were not where they should be: two on
    one GPU, say, which NCCL and RCCL refuse without such a reason."""
    try:
        proof.prove(layout, proof.read_tasks(stderr))
    except proof.BindingMismatch as err:
        return f"; {err}"
    return ""


@contextlib.contextmanager
def invalid_if_unreadable(folder: Path, run: Run) -> Iterator[None]:
    """Convert the errors of reading a run.

    :raises Invalid: naming the file.
    """
    try:
        yield
    except FileNotFoundError as err:
        message = f"{Path(err.filename).name} was not written"
        stderr = stderr_of(folder / run.err)
        raise outcomes.Invalid(
            f"{message}{last_line(stderr)}", code="output.file-missing"
        ) from None
    except OSError as err:
        raise unreadable(err) from None
    except (parse.ParseError, proof.BindingMismatch) as err:
        raise outcomes.Invalid(f"{run.out}: {err}", code=err.code) from None


#: A parser of a program's output, which raises :class:`~plumbline.parse.ParseError`.
Parser = Callable[[str], Output]


def parse_output(path: Path, parser: Parser, layout: Layout, result: CaseResult) -> Output:
    """Parse an output, and check that it is of as many tasks as the layout has.

    :raises ParseError: if it cannot be trusted.
    """
    try:
        found = _parsed(parser, parse.read_file(path))
    except parse.ParseError as err:
        if err.times != layout.num_tasks or err.times < 2:
            raise
        raise parse.ParseError(
            f"{err}. {err.times} separate processes of one rank each print this; likely cause: "
            f"{proof.OTHER_MPI}",
            code="output.task-count",
        ) from None
    if found.tasks not in (None, layout.num_tasks):
        raise parse.ParseError(
            task_count_message(found.tasks, layout, result), code="output.task-count"
        )
    return found


def confirm_inputs(output: Output, expected: Mapping[str, str]) -> None:
    """Check that a program reports these inputs.

    :raises ParseError: if it reports others or none, so that the options had no effect.
    """
    for name, value in expected.items():
        reported = output.inputs.get(name, "nothing")
        if reported != value:
            raise parse.ParseError(
                f"the first sample must report {name}: {value}, but reports {reported}",
                code="output.other-inputs",
            )


def _parsed(parser: Parser, text: str) -> Output:
    """Return what a parser finds, which may be a site's own.

    :raises ParseError: if it cannot be trusted; also if the parser is wrong, with its line.
    """
    try:
        output = parser(text)
    except parse.ParseError:
        raise
    except Exception as err:
        at = traceback.extract_tb(err.__traceback__)[-1]
        raise parse.ParseError(
            f"parse() of the check raised {type(err).__name__}: {err} ({at.filename}:{at.lineno})",
            code="check.parser-failed",
        ) from None
    for found in output.foms if isinstance(output, Output) else [output]:
        if not (isinstance(found, Fom) and isinstance(found.value, numbers.Real)):
            raise parse.ParseError(
                f"parse() of the check must return an Output of Foms, whose values are numbers; "
                f"it returned {found!r}",
                code="check.parser-failed",
            )
    return parse.checked(output)


def task_count_message(reported: int, layout: Layout, result: CaseResult) -> str:
    """Return the message for a program that reports another number of tasks: possible causes,
    then the nodes, of which there may be many."""
    if reported > layout.num_tasks:
        causes = [OTHER_RUN]
    else:
        causes = [proof.ALONE]
        causes.insert(reported == 1, FEWER_TASKS)
    return (
        f"{result.program} reports {reported} tasks, {len(result.tasks)} of "
        f"{layout.num_tasks} started; possible causes, the likeliest first: "
        f"{'; '.join(causes)}; tasks on {nodelist_abbrev(result.nodes) or 'no node'}"
    )


def value_of(benchmark: str, printed: Mapping[Figure, Fom], figure: Figure) -> float:
    """Return a figure in its registered unit.

    :raises ParseError: if it is missing from the program's output, not finite, or not positive.
    """
    fom = printed.get(figure)
    if fom is None:
        raise parse.ParseError(
            f"{figure.variable} is missing from the program's output", code="output.figure-missing"
        )
    registered = references().fom(benchmark, fom.metric)
    try:
        factor = units.conversion(fom.unit, registered.unit)
    except units.UnitError as err:
        raise parse.ParseError(f"{fom.variable}: {err}", code="output.unit") from None
    # A share that overlaps nothing is a valid zero, a bandwidth is not.
    least = 0 if references().rule(registered).better == "neither" else math.ulp(0)
    if not (math.isfinite(fom.value) and fom.value >= least):
        value = "not a number (NaN)" if math.isnan(fom.value) else f"{fom.value:g} {fom.unit}"
        raise parse.ParseError(
            f"{fom.variable} is {value}: it must be finite and positive",
            code="output.not-positive",
        )
    return fom.value * factor


def add_traffic(result: CaseResult, found: Mapping[Figure, float], stderr: str) -> None:
    """Add what the network interfaces moved in a run to the result.

    :arg found: its figures, in their registered units.
    """
    if counters := proof.network_counters(stderr):
        of = {f: references().fom(result.benchmark or "", f.metric).unit for f in found}
        result.traffic.add(counters, network.printed_rate(found, of, len(result.tasks)))


def note_readings(result: CaseResult) -> None:
    """Add what the GPUs and CPUs of the nodes reported: facts of the hosts, and warnings."""
    for host in result.readings.gpus:
        result.hosts.setdefault(host, {}).update(result.readings.facts(host))
    result.notices += result.readings.notices()


def check_network(result: CaseResult, system: str, partition) -> dict[str, str]:
    """Check which network the program used, and add the interface to each node's facts.

    Returns the nodes whose network others used too, each with a text.

    :raises Invalid: if it is not the stated one.
    """
    stated = partition.extras.get("fabric_interfaces", [])
    if wrong := network.wrong_interface(result.traffic, stated, result.hosts):
        raise outcomes.Invalid(
            f"{wrong}: set the MPI's interface in the environment (libfabric FI_TCP_IFACE, UCX "
            f"UCX_NET_DEVICES, Open MPI OMPI_MCA_btl_tcp_if_include), or correct "
            f"extras.fabric_interfaces of partition {partition.name} in "
            f"{paths.systems().find(f'{system}.yaml')}",
            code="network.wrong-interface",
        )
    result.notices += network.errors(result.traffic, stated, result.hosts)
    busy = {}
    for host in result.traffic.runs:
        facts = result.hosts.setdefault(host, {})
        if used := result.traffic.used(host, facts):
            facts[f"{network.FACT}used"] = ", ".join(sorted(used))
        of_interest = network.of_interest(result.traffic, stated, host, facts)
        if others := result.traffic.others(host, of_interest, facts):
            busy[host] = others
    return busy


def confirm_nodes(result: CaseResult, system: str, partition, layout: Layout, stderr: str) -> None:
    """Compare what the nodes report of themselves with the partition's entry in the system file.

    :raises TopologyMismatch: on a difference.
    """
    devices = [device.info for device in partition.devices]
    expected = NodeDescription(partition.processor.info, devices, partition.extras)
    file = paths.systems().find(f"{system}.yaml")
    for hosts, node in read_nodes(stderr):
        try:
            shown = compare_node(expected, hosts[0], node, bool(layout.vendor))
        except TopologyMismatch as err:
            raise TopologyMismatch(
                f"{file}, partition {partition.name}: {err}: correct the entry in the file, or "
                f"repair the node",
                code=err.code,
            ) from None
        result.confirmed |= dict.fromkeys(hosts, shown)
