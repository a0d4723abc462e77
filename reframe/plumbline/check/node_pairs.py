"""Checks between pairs of nodes: random pairs of all nodes of one job, round after round.

The pairs are chosen before the job is submitted, as positions in the job's list of nodes. The job
finds out which nodes these are, unless it requests them by name: then the rounds are arranged by
their racks. All pairs of a round run at once, each as a separate step with its own output and exit
code.
"""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import reframe.core.builtins as builtins
from reframe.core.backends import getlauncher

from plumbline.check import outcomes, rotation, samples, states
from plumbline.check.benchmark import Benchmark
from plumbline.check.job_output import common_node, last_line, stderr_of
from plumbline.check.parameters import references
from plumbline.check.samples import Run
from plumbline.check.tasks import topology_of
from plumbline.check.verdict import MOST_SHOWN
from plumbline.parse import Figure
from plumbline.placement import binding, proof
from plumbline.placement.placement import Layout
from plumbline.placement.topology import PlacementError, Topology

#: ReFrame's scheduler -> shell words that print the nodes of a job, one a line: sbatch(1), "OUTPUT
#: ENVIRONMENT VARIABLES"; qsub(1B) of PBS Professional, "PBS_NODEFILE"; IBM Spectrum LSF
#: Configuration Reference, "LSB_DJOB_HOSTFILE". The latter two list a node once for each task.
NODES_OF_JOB = {
    "slurm": 'scontrol show hostnames "$SLURM_JOB_NODELIST"',
    "squeue": 'scontrol show hostnames "$SLURM_JOB_NODELIST"',
    "pbs": 'uniq "$PBS_NODEFILE"',
    "pbspro": 'uniq "$PBS_NODEFILE"',
    "torque": 'uniq "$PBS_NODEFILE"',
    "lsf": 'uniq "$LSB_DJOB_HOSTFILE"',
}


class NodePairs(Benchmark):
    """The base class of checks between pairs of nodes. Each pair is a location of each figure, such
    as ``nid000001:nid000007``; ``nodes`` is the number of nodes of the job."""

    placement = "node-pairs"
    nodes = 2
    tags: ClassVar = {"screen"}
    num_samples = 3
    num_warmups = 0
    sample_seconds = 20
    keep_files: ClassVar = [*Benchmark.keep_files, samples.NODES]

    #: Seed of the random pairs; 0 for the date, ``20261121``.
    pair_seed = builtins.variable(int, value=0)

    def rounds_of_sample(self, chosen: Sequence[str] = ()) -> list[list[tuple[int, int]]]:
        """Return the rounds of pairs of one sample, as positions in the job's list of nodes.

        :arg chosen: the nodes that the job requests, in the order of that list, if any.
        """
        # Not imported above: it loads NumPy, which takes too long for listing the checks.
        from plumbline.placement import pairing

        names = [str(place) for place in range(self.nodes)]
        racks = rotation.racks_of(self.current_partition, chosen) if chosen else {}
        known = {name: racks[node] for name, node in zip(names, chosen, strict=False)
                 if node in racks}  # fmt: skip
        found = pairing.rounds(names, self.seed, known if len(known) == len(names) else None)
        return [[(int(first), int(second)) for first, second in pairs] for pairs in found]

    @property
    def seed(self) -> int:
        """The seed of the random pairs, which is in the job script."""
        if not self.pair_seed:
            self.pair_seed = int(time.strftime("%Y%m%d"))
        return self.pair_seed

    # -- the job ----------------------------------------------------------------------------

    def lay_out(self, partition, topology: Topology) -> tuple[Layout, ...]:
        if self.nodes < 2:
            raise PlacementError(
                f"placement {self.placement!r}: a job of {self.nodes} has no pair of nodes: set "
                f"-S {type(self).__name__}.nodes=2, or more",
                code="placement.too-few-nodes",
            )
        return super().lay_out(partition, topology)

    def bind_tasks(self, manager: str) -> list[binding.Binding]:
        scheduler = self.current_partition.scheduler.registered_name
        if scheduler not in NODES_OF_JOB:
            raise binding.BindingError(
                f"scheduler {scheduler!r}: Plumbline cannot list the nodes of its jobs "
                f"(supported, in plumbline/check/node_pairs.py: {', '.join(NODES_OF_JOB)})",
                code="binding.scheduler-unknown",
            )
        (bound,) = super().bind_tasks(manager)
        self.on_pair = binding.bind_pair(bound, manager)
        self.chosen = [] if self.is_dry_run() else rotation.of_job(
            self.current_partition, self.job, self.nodes, 1, self.display_name
        )  # fmt: skip
        rounds = self.rounds_of_sample(self.chosen)
        self.rounds = rounds * (self.num_warmups + self.num_samples)
        return [bound]

    def limit_time(self, layouts: int) -> None:
        self.time_limit = f"{self.seconds_of(len(getattr(self, 'rounds', ())))}s"

    def cost_on(self, partition) -> tuple[int, float]:
        self.lay_out(partition, topology_of(partition))
        rounds = len(self.rounds_of_sample()) * (self.num_warmups + self.num_samples)
        return self.nodes, self.seconds_of(rounds)

    def set_tasks(self) -> None:
        super().set_tasks()
        self.num_tasks = self.job.num_tasks = self.nodes

    def prepare_launcher(self, bindings: list[binding.Binding], options: list[str]) -> None:
        self.job.launcher.options = [*options, *self.on_pair.words]

    def sample_command(self, path: str, bindings: list[binding.Binding]) -> None:
        if self.duet_side:
            self.skip_case(
                "a duet cannot measure pairs of nodes, which run at once: compare sessions instead",
                "duet.not-possible",
            )
        listed = NODES_OF_JOB[self.current_partition.scheduler.registered_name]
        if self.chosen:
            listed = f"printf '%s\\n' {shlex.join(self.chosen)}"
        loop = samples.rounds_loop(
            self.rounds,
            self.nodes,
            listed,
            self.on_pair,
            bindings[0].task,
            [*self.before_sample, *self.watch[:1]],
            [*self.watch[1:], *self.after_sample],
            f"rounds of pairs, seed {self.seed}",
        )
        # The job has more tasks than the launcher is to start.
        self.job.num_tasks = self.layout.num_tasks
        launch = self.job.launcher.run_command(self.job)
        self.job.num_tasks = self.num_tasks
        self.job.launcher = getlauncher("local")()
        self.put_command(f"{launch} ./task.sh", path, loop)

    def choose_nodes(self):
        """Request the nodes by which the rounds were arranged, if they were."""
        self.job.pin_nodes = self.chosen or self.job.pin_nodes

    # -- the output -------------------------------------------------------------------------

    def runs(self) -> Iterable[Run]:
        count = self.num_warmups + self.num_samples
        return samples.pair_runs(self.rounds, self.nodes_listed, self.layout, count)

    def read_ends(self) -> dict[str, samples.RunEnd]:
        """Return how each run ended.

        :raises Invalid: with the pairs that failed, and a node that all of them have.
        """
        ended = super().read_ends()
        try:
            self.nodes_listed = samples.nodes_of_job(Path(self.stagedir))
        except samples.SampleError as err:
            raise outcomes.Invalid(f"{err}", code=err.code) from None
        if len(self.nodes_listed) != self.nodes:
            raise outcomes.Invalid(
                f"{samples.NODES} lists {len(self.nodes_listed)} nodes, not {self.nodes}",
                code="output.node-count",
            )
        self.sharing = self.sharing_of_runs()
        failed = [name for name, end in ended.items() if end.status]
        if len(failed) > 1:
            pairs = dict.fromkeys(name.partition("-")[2] for name in failed)
            more = [f"and {len(pairs) - MOST_SHOWN} more"] if len(pairs) > MOST_SHOWN else []
            codes = ", ".join(sorted({str(ended[name].status) for name in failed}))
            shown = ", ".join([*pairs][:MOST_SHOWN] + more)
            stderr = stderr_of(Path(self.stagedir, f"sample-{failed[0]}.err"))
            raise outcomes.Invalid(
                f"{len(failed)} of {len(ended)} runs between two nodes ended with exit "
                f"code {codes}: {shown}{common_node(failed)}{last_line(stderr)}",
                code="output.exit-code",
            )
        return ended

    def sharing_of_runs(self) -> dict[str, int]:
        """Return how many pairs shared the uplink in each run, the pair of the run included; 0
        within a rack. It is empty if the racks are not known."""
        from plumbline.placement import pairing

        racks = rotation.racks_of(self.current_partition, self.nodes_listed)
        found = {}
        for number, places in enumerate(self.rounds):
            pairs = [(self.nodes_listed[one], self.nodes_listed[other]) for one, other in places]
            for (one, other), share in pairing.sharing(pairs, racks).items():
                found[f"{number}-{one}:{other}"] = share
        return found

    def across_of(self, figure: Figure) -> int | None:
        return self.across.get(figure.location)

    def read_run(self, run: Run, ended: dict[str, samples.RunEnd]) -> dict[Figure, float]:
        """Return the figures of one run, at the two nodes that its tasks reported."""
        figures = super().read_run(run, ended)
        pair = run.name.partition("-")[2].split(":")
        proof.prove_nodes(pair, self.result.tasks, self.nodes_listed)
        for task in self.result.tasks:
            self.task_of_host.setdefault(task.host, task)
        location = ":".join(sorted(task.host for task in self.result.tasks))
        if run.name in self.sharing:
            self.across[location] = max(self.sharing[run.name], self.across.get(location, 0))
        return {figure._replace(location=location): value for figure, value in figures.items()}

    def read_samples(self) -> dict[Figure, list[float]]:
        self.task_of_host: dict[str, proof.TaskReport] = {}
        self.across: dict[str, int] = {}
        figures = super().read_samples()
        if len(self.task_of_host) != self.nodes:
            raise outcomes.Invalid(
                f"the pairs ran on {len(self.task_of_host)} hosts, and the job has "
                f"{self.nodes} nodes: {', '.join(self.nodes_listed[:MOST_SHOWN])} ...",
                code="output.node-count",
            )
        # All nodes, not those of the last pair alone.
        self.result.tasks = [*self.task_of_host.values()]
        self.show_worst(figures)
        return figures

    def of_busy_nodes(
        self, figures: dict[Figure, list[float]], busy: dict[str, str]
    ) -> dict[Figure, list[float]]:
        """Return the figures of pairs of which others did not use the network; if there are none,
        those of all pairs."""
        left = {f: values for f, values in figures.items() if busy.keys().isdisjoint(
            f.location.split(":"))}  # fmt: skip
        if not left:
            return super().of_busy_nodes(figures, busy)
        for text in busy.values():
            detail = f"{text}: its pairs are skipped: measure again"
            self.result.notices.append(states.Notice(states.WARNINGS, "figure.busy", detail))
        self.show_worst(left)
        return left

    def show_worst(self, figures: dict[Figure, list[float]]) -> None:
        """Show the worst pair of each metric in the summary."""
        metrics = dict.fromkeys(figure.metric for figure in self.figures())
        self.headline = [self.worst(figures, metric).variable for metric in metrics]

    def worst(self, figures: dict[Figure, list[float]], metric: str) -> Figure:
        """Return the worst pair by a metric, which is in the summary."""
        rule = references().rule(references().fom(self.benchmark, metric))
        worst = max if rule.better == "lower" else min
        of_metric = [figure for figure in figures if figure.metric == metric]
        return worst(of_metric, key=lambda figure: statistics.median(figures[figure]))
