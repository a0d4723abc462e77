"""The mixin that every check uses: a test case that cannot pass silently.

A check declares its benchmark, program, figures, placement, conditions and cost class. The mixin
runs all samples in one job, reads them in the sanity phase, and compares the figures with their
references in the performance phase.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

import reframe.core.builtins as builtins
import reframe.utility.sanity as sn

from plumbline import parse as parsers
from plumbline.check import duet, job_output, outcomes, rotation, samples, scratch, verdict
from plumbline.check.parameters import references
from plumbline.check.placed import Placed
from plumbline.check.result import Measurement, subject_of
from plumbline.check.samples import Run
from plumbline.parse import Figure, Fom, outputs
from plumbline.placement import placement, proof
from plumbline.reference import waivers
from plumbline.reference.row import Case
from plumbline.site import slurm_jobs


class Benchmark(Placed):
    """The base class of all checks.

    A check declares ``placement`` as a parameter (or sets it), and ``variant`` if it runs under the
    system file's ``extras.variants``. It overrides :meth:`figures`; :meth:`prepare` if the program
    needs options, an input file or a folder; :meth:`verify` if its output has what it ran with; and
    :meth:`derive` if a figure is computed from printed ones. A check of a benchmark that Plumbline
    does not know has its :attr:`foms` and :meth:`parse`, too.

    In ``program``, ``environ_features``, ``conditions`` and ``headline``, the name of a parameter,
    variable or property in braces is replaced by its value: ``program = "osu_{test}"``. A parameter
    ``scale`` of :func:`~plumbline.check.parameters.published_scales` sets nodes and tasks."""

    # The output of the samples is kept, so that a verdict can be checked.
    keep_files: ClassVar = ["sample-*", "samples.txt", samples.NOT_STARTED, "side-*.sh"]

    # ReFrame records its own comparison; :meth:`judge` decides.
    strict_check = False

    # -- the output -----------------------------------------------------------------------------

    @builtins.run_after("run")
    def note_expected(self) -> None:
        """List the figures that a dry run would measure."""
        if self.is_dry_run():
            figures = [figure for layout in self.layouts for figure in self.figures_of(layout)]
            figures += self.optional()
            self.result.expected = [(figure, self.case_of(figure)) for figure in figures]

    @builtins.sanity_function
    def trusted(self):
        """Check that every sample ended, ran where it was placed, and printed every figure."""
        found = self.read_samples()
        system = self.current_system.name
        job_output.note_readings(self.result)
        if busy := job_output.check_network(self.result, system, self.current_partition):
            found = self.of_busy_nodes(found, busy)
        if self.shared and not (self.result.shared or self.duet_side):
            # Others began to use the cores since the case was arranged.
            self.result.shared = True
            self.mark_busy()
        # Reading them may choose the figures that are shown, such as the worst pair. One is always
        # shown: a case that measured would not be in the table.
        shown = {
            figure
            for figure in found
            if {figure.variable, figure._replace(location="").variable} & {*self.headline}
        } or {*list(found)[:1]}
        self.result.figures = {
            figure: Measurement(
                values,
                self.case_of(figure),
                references().fom(self.benchmark, figure.metric).unit,
                figure in shown,
                self.across_of(figure),
            )
            for figure, values in found.items()
        }
        return True

    def across_of(self, figure: Figure) -> int | None:
        """Return the number of pairs of nodes that shared an uplink; ``None`` if it is no pair."""
        return None

    def of_busy_nodes(
        self, figures: dict[Figure, list[float]], busy: dict[str, str]
    ) -> dict[Figure, list[float]]:
        """Return the figures of a case. They are not compared, as others used the network too.

        :arg busy: node -> a text about it.
        """
        if not self.duet_side:
            # What is common to both sides of a duet cancels.
            self.result.others = [*busy.values()]
            self.mark_busy()
        return figures

    def mark_busy(self) -> None:
        """Record that others used the machine or the network, so that figures are not compared."""
        self.conditions = {"busy": "yes", **self.conditions}
        self.result.conditions = {**self.conditions}

    def read_samples(self) -> dict[Figure, list[float]]:
        """Return the declared figures of every sample but the warm-ups.

        :raises Invalid: if one run cannot be trusted, naming the file.
        """
        stagedir = Path(self.stagedir)
        self.result.notices = job_output.notices(stagedir, self.job.stderr)
        ended = self.read_ends()
        figures: dict[Figure, list[float]] = {}
        for run in self.runs():
            with job_output.invalid_if_unreadable(stagedir, run):
                for figure, value in self.read_run(run, ended).items():
                    values = figures.setdefault(figure, [])
                    if run.sample >= self.num_warmups:
                        values.append(value)
        for figure, values in figures.items():
            if len(values) != self.num_samples:
                raise outcomes.Invalid(
                    f"{figure.variable} is missing from the output of at least one sample",
                    code="output.figure-missing",
                )
        return figures

    def runs(self) -> Iterable[Run]:
        """Return the runs of the job, in order."""
        return samples.runs(self.layouts, self.num_warmups + self.num_samples)

    def read_ends(self) -> dict[str, samples.RunEnd]:
        """Return how each run ended; skip the case if the job found its file system unsuitable.

        :raises Invalid: if none did, or the file that has this is garbled.
        """
        ended = job_output.run_ends(Path(self.stagedir), self.submitted)
        fabric = self.current_partition.extras.get("fabric_interfaces", [])
        job_output.check_started(Path(self.stagedir), self.layout, self.start_seconds, fabric)
        duet.check_ends(self, ended)
        if not ended:
            stderr = job_output.stderr_of(Path(self.stagedir, self.job.stderr))
            if refused := scratch.refusal(stderr):
                self.skip_case(str(refused), refused.code)
            raise outcomes.Invalid(
                f"no sample finished{self.job_message()}", code="output.no-sample"
            )
        self.result.seconds = [end.seconds for end in ended.values()]
        return ended

    def job_message(self) -> str:
        """Return the last line that the job wrote, and the state that Slurm reports."""
        path = Path(self.stagedir, self.job.stderr)
        message = f", and the job left no {path.name}"
        if path.exists():
            message = job_output.last_line(job_output.stderr_of(path))
        if self.current_partition.scheduler.registered_name == "slurm":
            message += f"; Slurm reports {slurm_jobs.end_of(self.job)}"
        return message

    def read_run(self, run: Run, ended: dict[str, samples.RunEnd]) -> dict[Figure, float]:
        """Return the declared figures of one run.

        :raises Invalid: if the run failed.
        :raises ParseError: if its output cannot be trusted.
        :raises BindingMismatch: if a task ran elsewhere.
        """
        layout, result = run.layout, self.result
        stderr = outputs.read(Path(self.stagedir, run.err), errors="replace")
        fabric = self.current_partition.extras.get("fabric_interfaces", [])
        several = layout.num_nodes > 1
        links = partial(job_output.links_down, Path(self.stagedir), fabric) if several else str
        job_output.check_end(run, ended, stderr, links)
        seen = proof.read_tasks(stderr)
        self.check_racks(layout, seen)
        proof.prove(layout, seen)
        if self.pinned_to:
            proof.prove_nodes([self.pinned_to.node], seen, self.pinned_to.others)
        duet.prove(self, seen)
        result.tasks = seen
        system = self.current_system.name
        job_output.confirm_nodes(result, system, self.current_partition, layout, stderr)
        for host, facts in proof.host_facts(stderr).items():
            result.hosts.setdefault(host, {}).update(facts)
        result.variables |= proof.variables(stderr, str(self.job.jobid or ""))
        parsers.check_stderr(self.benchmark, stderr)
        printed: dict[Figure, Fom] = {}
        for path, location in self.output_files(run):
            output = job_output.parse_output(path, self.parse, layout, result)
            self.verify(output)
            if run.sample == 0:
                job_output.confirm_inputs(output, self.first_sample_inputs)
            result.version = output.version
            foms = [
                dataclasses.replace(fom, location=fom.location or location) for fom in output.foms
            ]
            printed |= {fom.figure: fom for fom in foms}
        printed |= {fom.figure: fom for fom in self.derive(printed)}
        wanted = self.figures_of(layout)
        wanted += [figure for figure in self.optional() if figure in printed]
        found = {figure: job_output.value_of(self.benchmark, printed, figure) for figure in wanted}
        job_output.add_traffic(result, found, stderr)
        result.readings.add(stderr, seen)
        return found

    def output_files(self, run: Run) -> list[tuple[Path, str]]:
        """Return the outputs of a run, each with its location if the program does not print it."""
        stagedir, locations = Path(self.stagedir), run.layout.locations
        if self.output_per_task:
            return [(stagedir / run.out_of_rank(rank), name) for rank, name in enumerate(locations)]
        path = (stagedir / run.out).with_suffix(f".{self.output_suffix}")
        return [(path, locations[0] if len(locations) == 1 and not self.one_process else "")]

    def check_racks(self, layout: placement.Layout, seen: list[proof.TaskReport]) -> None:
        """Skip the test case if the scheduler gave nodes of fewer racks than it needs."""
        if layout.racks == 1:
            return
        hosts = [task.host for task in seen]
        racks = {*rotation.racks_of(self.current_partition, hosts).values()}
        if len(racks) < layout.racks:
            self.skip_case(
                f"all nodes are in rack {', '.join(racks) or '?'}: request nodes of "
                f"{layout.racks} racks from the scheduler (ReFrame's -J)",
                code="placement.one-rack",
            )

    def case_of(self, figure: Figure) -> Case:
        """Return the conditions of one figure of this test case, for the references."""
        layout = next(
            (known for known in self.layouts if figure.location in known.locations), self.layout
        )
        conditions = {**self.conditions, **self.conditions_at(figure.location)}
        if self.current_system.name == "local":
            # `local` is another machine on another host.
            conditions["host"] = platform.node()
        return Case(
            self.current_system.name,
            self.current_partition.name,
            self.current_environ.name,
            self.benchmark,
            layout.placement,
            layout.num_nodes,
            layout.num_tasks_per_node,
            conditions,
        )

    # -- the verdict ----------------------------------------------------------------------------

    @builtins.run_before("performance")
    def judge(self):
        """Give each figure its verdict, and ReFrame the same numbers for its own store."""
        if self.is_dry_run():
            return
        if not self.result.figures:
            raise outcomes.Invalid(
                "ReFrame was started with an option that skips the sanity check, so the output "
                "was not verified",
                code="case.phase-skipped",
            )
        self.result.judgements = verdict.judge(self.result, self.subject)
        self.result.notices += [*verdict.notices(self.result), *self.doubts()]
        for name, (value, unit) in verdict.values_for_reframe(self.result).items():
            self.perf_variables[name] = sn.make_performance_function(sn.defer(value), unit)
        bounds = verdict.bounds_for_reframe(self.result)
        self.reference = {self.current_partition.fullname: bounds}

    @builtins.run_after("performance")
    def assert_verdicts(self):
        """Fail the test case on each figure outside its bounds or above its ceiling; if waivers
        cover all of them, as a known fault."""
        if not self.is_dry_run():
            for name in verdict.waived_variables(self.result):
                # ReFrame's own store has its verdict next to the value.
                self.perfvalues[f"{self.current_partition.fullname}:{name}"][-1] = "xfail"
            verdict.raise_failures(self.result, self.subject)

    @property
    def subject(self) -> waivers.Subject:
        """The test case as waivers identify it."""
        return subject_of((self, self.current_partition, self.current_environ))
