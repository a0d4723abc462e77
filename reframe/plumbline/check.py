"""The one mixin that every check uses: what a test case must do so that it cannot pass silently.

A check declares its benchmark, program, figures, placement, conditions and cost class. The mixin
turns the placement into tasks and their binding, asks the provider for the program, runs all
samples in one job, reads them in the sanity phase, and holds the figures against their
references in the performance phase.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import secrets
import shlex
import shutil
from pathlib import Path

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.osext as osext
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.backends import getlauncher
from reframe.core.exceptions import PerformanceError, ReframeError, SanityError
from reframe.core.runtime import emit_loadenv_commands

from plumbline import binding, configuration, parse, paths, placement, provider, reference, units
from plumbline.errors import Fault

#: A figure of merit that a check declares: its metric and message size in bytes, if it has one.
Figure = tuple[str, int | None]

#: Failed figures that a message tells of; the table and the record have them all.
MOST_TOLD = 5

_WRAPPER = Path(__file__).with_name("task.sh")


class Benchmark(rfm.RunOnlyRegressionTest):
    """What every check has. Declare ``placement`` as a parameter (or set it), and override
    :meth:`figures`, :meth:`prepare` where the program needs an input file or a folder, and
    :meth:`verify` where its output says what it ran with."""

    #: Key of the parser and of ``reference/foms.yaml``.
    #:
    #: :type: :class:`str`
    benchmark = builtins.variable(str)

    #: Name of the executable that the environment's provider is asked for.
    #:
    #: :type: :class:`str`
    program = builtins.variable(str)

    #: What has no column of its own in a reference table: ``{'api': 'POSIX'}``.
    #:
    #: :type: :class:`Dict[str, str]`
    conditions = builtins.variable(typ.Dict[str, str], value={})

    #: Complete runs of the program that the verdict rests on, all in one job.
    #:
    #: :type: :class:`int`
    num_samples = builtins.variable(int, value=5)

    #: Complete runs before them that are checked, kept, and left out of the verdict.
    #:
    #: :type: :class:`int`
    num_warmups = builtins.variable(int, value=1)

    #: Seconds that one sample may take; the job's time limit grows with the samples.
    #:
    #: :type: :class:`int`
    sample_seconds = builtins.variable(int, value=60)

    #: Shell commands before and after the program in each sample, on the job's first node.
    #:
    #: :type: :class:`List[str]`
    before_sample = builtins.variable(typ.List[str], value=[])
    after_sample = builtins.variable(typ.List[str], value=[])

    #: Figures that the closing table shows of this check.
    #:
    #: :type: :class:`List[str]`, names of performance variables
    headline = builtins.variable(typ.List[str], value=[])

    #: Names of the performance variables that :meth:`figures` declares, for `plumbline refs`.
    declared = builtins.variable(typ.List[str], value=[])

    # The samples' output is kept for whoever doubts a verdict.
    keep_files = ["sample-*", "samples.txt"]

    # ReFrame's own comparison is recorded; the verdict, with its source, is `judge`'s.
    strict_check = False

    def figures(self) -> list[Figure]:
        """The figures of merit that every sample must print; all others are ignored."""
        raise Fault(f"{type(self).__name__}: figures() is not declared")

    def verify(self, output: parse.Output) -> None:
        """Holds what the program says it ran with against what it was asked for.

        :raises ParseError: if it ran something else.
        """

    def prepare(self) -> None:
        """Options, input files and folders of the program; runs once the layout is known."""

    @builtins.run_after("init", always_last=True)
    def declare(self):
        """Holds the declaration against what Plumbline knows, and selects by it."""
        name = type(self).__name__
        if not placement.known(self.placement):
            raise Fault(
                f"check {name}: unknown placement {self.placement!r}; "
                f"Plumbline knows {placement.describe()}"
            )
        if self.benchmark not in parse.BENCHMARKS:
            raise Fault(f"check {name}: no parser for benchmark {self.benchmark!r}")
        if not self.tags & set(configuration.TAGS):
            raise Fault(f"check {name}: no cost class; tag it {', '.join(configuration.TAGS)}")
        if self.num_samples < 1 or self.num_warmups < 0:
            raise Fault(f"check {name}: num_samples must be at least 1, num_warmups at least 0")
        for key in set(self.conditions) - set(references().tables.conditions):
            raise Fault(f"check {name}: condition {key!r} is not in reference/conditions.yaml")
        for metric, size in self.figures():
            references().fom(self.benchmark, metric)
            self.declared = [*self.declared, parse.variable(metric, size)]
        self.tags |= {self.benchmark}
        wanted = f"+{self.placement}"
        if "full" in self.tags:
            wanted += " +full"
        self.valid_systems = [wanted]
        self.valid_prog_environs = [f"+{self.benchmark}"]
        self.executable = self.program
        self.time_limit = f"{(self.num_samples + self.num_warmups) * self.sample_seconds + 60}s"

    @builtins.run_after("setup")
    def place(self):
        """From placement and topology to tasks, program, launcher and binding."""
        try:
            self.topology = topology_of(self.current_partition)
            self.layout = placement.lay_out(self.placement, self.topology)
            found = provider.find(
                self.current_environ.extras.get("provider", "path"),
                self.program,
                functools.partial(_which, self.current_partition, self.current_environ),
            )
            launcher = self.current_environ.extras.get("launcher")
            if launcher or self.job.launcher.registered_name == "local":
                self.job.launcher = getlauncher(launcher or found.launcher)()
            if self.job.launcher.registered_name == found.launcher != "local":
                self.job.launcher.path = found.launcher_path
            # Whose an mpiexec is its name does not tell: the environment does.
            manager = self.current_environ.extras.get("process_manager")
            bound = binding.bind(self.layout, manager or self.job.launcher.registered_name)
        except (placement.PlacementError, provider.NotProvided, binding.BindingError) as err:
            self.leave_out(str(err))
        self.build = found.build
        self.num_tasks = self.layout.num_tasks
        self.num_tasks_per_node = self.layout.num_tasks_per_node
        self.num_cpus_per_task = self.layout.num_cpus_per_task
        self.env_vars.update({**found.env_vars, **bound.env_vars})
        options = [*map(shlex.quote, bound.options)]
        if self.job.launcher.registered_name == "local":
            # ReFrame's local launcher drops its options; a modifier stays before the program.
            self.job.launcher.modifier, *self.job.launcher.modifier_options = options
        else:
            self.job.launcher.options = options
        self.prepare()
        for name, text in bound.files.items():
            self.write_file(name, text)
        shutil.copy(_WRAPPER, self.stagedir)
        self.sample_command(found.path)

    def sample_command(self, path: str) -> None:
        """Makes the job a loop over the samples around the launcher's own command.

        Each sample has its own output; its exit code and its start and end stand in
        ``samples.txt``. A sample that fails ends the job.
        """
        last = self.num_warmups + self.num_samples - 1
        self.prerun_cmds = [
            *self.prerun_cmds,
            f"for sample in $(seq 0 {last}); do  # {self.num_warmups} to warm up",
            *self.before_sample,
            "began=$(date +%s.%N)",
        ]
        self.executable = "./task.sh"
        self.executable_opts = [
            "$sample",
            shlex.quote(path),
            *map(shlex.quote, self.executable_opts),
            ">sample-$sample.out",
            "2>sample-$sample.err",
        ]
        self.postrun_cmds = [
            "status=$?; ended=$(date +%s.%N)",
            *self.after_sample,
            'echo "$sample $status $began $ended" >>samples.txt',
            "[ $status = 0 ] || exit $status",
            "done",
            *self.postrun_cmds,
        ]

    def write_file(self, name: str, text: str) -> None:
        """Writes an input file into the stage folder."""
        (Path(self.stagedir) / name).write_text(text, encoding="utf-8")

    def make_scratch(self, needed: int, direct_io: bool = False) -> Path:
        """A folder of this test case's own in the partition's scratch (``extras.scratch``).

        The job removes it at its end, whatever the end; :meth:`tidy` where the job could not.

        :arg needed: bytes that the test case will write; it is skipped where fewer are free.
        :arg direct_io: skips the test case where the file system has no direct I/O.
        """
        scratch = self.current_partition.extras.get("scratch")
        if not scratch:
            self.leave_out("the partition has no scratch folder: set its extras.scratch")
        folder = Path(scratch) / f"plumbline-{Path(self.stagedir).name}-{secrets.token_hex(4)}"
        self.scratch_folder = folder
        removal = f"rm -rf -- {shlex.quote(str(folder))}"
        self.prerun_cmds = [*self.prerun_cmds, f"trap {shlex.quote(removal)} EXIT"]
        try:
            folder.mkdir(mode=0o700)
            free = shutil.disk_usage(folder).free
            if free < needed * 1.05:
                self.leave_out(
                    f"{scratch} has {free / 2**30:.2f} GiB free, {needed / 2**30:.2f} GiB are "
                    f"needed: free some, or point the partition's scratch elsewhere"
                )
            if direct_io and not has_direct_io(folder):
                self.leave_out(
                    f"{scratch} has no direct I/O, and what the page cache says is no file "
                    f"system's bandwidth: point the partition's scratch at a disk"
                )
        except OSError as err:
            self.leave_out(f"{scratch}: {err.strerror}: point the partition's scratch elsewhere")
        return folder

    def tidy(self) -> None:
        """Removes what the job may have left, also after it was killed."""
        folder = getattr(self, "scratch_folder", None)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def leave_out(self, reason: str) -> None:
        """Skips the test case with a reason and its mend; fails it under strict rules."""
        if os.environ.get("PLUMBLINE_STRICT") == "1":
            raise ReframeError(f"skipped under strict rules: {reason}")
        self.skip(reason)

    @builtins.sanity_function
    def trusted(self):
        """Every sample ended well, where the placement says, and printed every figure once."""
        self.samples = self.read_samples()
        return True

    def read_samples(self) -> dict[Figure, list[float]]:
        """The declared figures of every sample that is no warm-up.

        :raises SanityError: if one sample cannot be trusted; its text names the file.
        """
        ended = self.read_exits()
        figures = {figure: [] for figure in self.figures()}
        self.hosts = {}
        for sample in range(self.num_warmups + self.num_samples):
            out = Path(self.stagedir) / f"sample-{sample}.out"
            err = out.with_suffix(".err")
            try:
                said = err.read_text(encoding="utf-8", errors="replace")
                if sample not in ended:
                    raise SanityError(f"invalid: sample {sample} never ended{_last_words(said)}")
                if ended[sample]:
                    raise SanityError(
                        f"invalid: sample {sample} ended with exit code {ended[sample]}"
                        f"{_last_words(said)}"
                    )
                tasks = binding.seen(said)
                binding.prove(self.layout, tasks)
                for host, facts in binding.host_facts(said).items():
                    self.hosts.setdefault(host, {}).update(facts)
                output = parse.parse_file(self.benchmark, out)
                if output.tasks not in (None, self.layout.num_tasks):
                    raise parse.ParseError(
                        f"{self.program} ran on {output.tasks} tasks, not on "
                        f"{self.layout.num_tasks}: its MPI is not the launcher's"
                    )
                self.verify(output)
                found = {(fom.metric, fom.size): fom for fom in output.foms}
                for figure, values in figures.items():
                    value = self.read_figure(found, figure)
                    if sample >= self.num_warmups:
                        values.append(value)
            except (parse.ParseError, binding.BindingMismatch, OSError) as fault:
                raise SanityError(f"invalid: {out.name}: {fault}") from None
        self.tasks_seen, self.version = tasks, output.version
        return figures

    def read_exits(self) -> dict[int, int]:
        """Exit code of each sample that ended.

        :raises SanityError: if ``samples.txt`` is missing, garbled, or names a sample twice.
        """
        path = Path(self.stagedir) / "samples.txt"
        ended: dict[int, int] = {}
        self.sample_times: list[float] = []
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                sample, status, began, done = line.split()
                if int(sample) in ended:
                    raise ValueError(f"sample {sample} stands twice")
                ended[int(sample)] = int(status)
                self.sample_times.append(float(done) - float(began))
        except FileNotFoundError:
            said = (Path(self.stagedir) / str(self.job.stderr)).read_text(errors="replace")
            raise SanityError(f"invalid: no sample ended{_last_words(said)}") from None
        except (ValueError, OSError) as err:
            raise SanityError(f"invalid: {path.name}: {err}") from None
        return ended

    def read_figure(self, found: dict[Figure, parse.Fom], figure: Figure) -> float:
        """One declared figure of a sample, in its registered unit: printed, finite, positive."""
        fom = found.get(figure)
        if fom is None:
            raise parse.ParseError(f"{parse.variable(*figure)} is not printed")
        try:
            factor = units.factor(fom.unit, self.unit_of(fom.metric))
        except units.UnitError as err:
            raise parse.ParseError(f"{fom.variable}: {err}") from None
        if not (math.isfinite(fom.value) and fom.value > 0):
            raise parse.ParseError(f"{fom.variable} is {fom.value:g} {fom.unit}, not positive")
        return fom.value * factor

    def unit_of(self, metric: str) -> str:
        """The registered unit of a metric."""
        return references().fom(self.benchmark, metric).unit

    def nodes_on(self, partition) -> int:
        """Nodes that a job takes on a partition.

        :raises PlacementError: if the partition does not have the placement.
        """
        return placement.lay_out(self.placement, topology_of(partition)).num_nodes

    @property
    def case(self) -> reference.Case:
        """The conditions of this test case, for the references."""
        conditions = dict(self.conditions)
        if self.current_system.name == "local":
            # `local` is another machine on another host.
            conditions["host"] = platform.node()
        return reference.Case(
            self.current_system.name,
            self.current_partition.name,
            self.current_environ.name,
            self.benchmark,
            self.placement,
            self.layout.num_nodes,
            self.layout.num_tasks_per_node,
            conditions,
        )

    @builtins.run_before("performance")
    def judge(self):
        """Gives each figure its verdict, and ReFrame the same numbers for its own store."""
        if self.is_dry_run():
            return
        if not hasattr(self, "samples"):
            raise SanityError("invalid: ReFrame was told to leave out the sanity phase")
        tables, full_name = references(), self.current_partition.fullname
        self.judgements = {
            figure: tables.judge(self.case, *figure, values)
            for figure, values in self.samples.items()
        }
        bounds = {}
        for (metric, size), judged in self.judgements.items():
            name, unit = parse.variable(metric, size), self.unit_of(metric)
            self.perf_variables[name] = sn.make_performance_function(sn.defer(judged.value), unit)
            if judged.bounds:
                bounds[name] = (*_relative(judged.bounds), unit)
        self.reference = {full_name: bounds}

    @builtins.run_after("performance")
    def assert_verdicts(self):
        """Fails the test case on each figure outside its bounds or above its ceiling.

        :raises PerformanceError: naming system, nodes, figure, value, bounds and source.
        """
        if self.is_dry_run():
            return
        faults = [
            message
            for figure, judged in self.judgements.items()
            if (message := self.fault_of(figure, judged))
        ]
        if faults:
            where = f"{self.current_partition.fullname} on {','.join(self.job.nodelist or ['?'])}"
            more = len(faults) - MOST_TOLD
            told = faults[:MOST_TOLD] + ([f"and {more} more: see the record"] if more > 0 else [])
            raise PerformanceError(f"{where}: " + "; ".join(told))

    def fault_of(self, figure: Figure, judged: reference.Judgement) -> str | None:
        """What is wrong with a figure, ``None`` if nothing is."""
        unit = self.unit_of(figure[0])
        value = f"{parse.variable(*figure)} = {judged.value:.6g} {unit}"
        if judged.verdict == "above-ceiling":
            return (
                f"{value} is beyond its ceiling {judged.ceiling:.6g} {unit} ({judged.ceiling_id}): "
                f"a fault of the measurement"
            )
        if judged.verdict == "fail":
            bounds = judged.bounds
            others = f"; as near: {', '.join(bounds.others)}" if bounds.others else ""
            return (
                f"{value} ({judged.statistic} of {self.num_samples}) is outside "
                f"[{reference.told(bounds.lower)}, {reference.told(bounds.upper)}] "
                f"(reference {bounds.decides}, {bounds.value:.6g} {unit}: {bounds.source}{others})"
            )
        return None


def references() -> reference.References:
    """The tables in force."""
    return reference.loaded(paths.reference())


def topology_of(partition) -> placement.Topology:
    """The topology of a ReFrame partition, within the CPUs that may be used.

    :raises PlacementError: if it is not known.
    """
    return placement.Topology.from_processor(
        partition.processor.info, partition.extras.get("usable_cpus")
    )


def has_direct_io(folder: Path) -> bool:
    """Whether files of a folder can be opened past the page cache."""
    probe = folder / "direct-io"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def _relative(bounds: reference.Bounds) -> tuple[float, float | None, float | None]:
    """Bounds as ReFrame takes them: the reference and what may be lost or gained of it."""
    lower = None if math.isinf(bounds.lower) else max(bounds.lower / bounds.value - 1, -1.0)
    upper = None if math.isinf(bounds.upper) else bounds.upper / bounds.value - 1
    return bounds.value, lower, upper


def _last_words(stderr: str) -> str:
    """The last line that a program wrote, after a colon, for a message."""
    lines = [line for line in stderr.splitlines() if not line.startswith("plumbline-")]
    return f": {lines[-1].strip()}" if lines else ""


def _which(partition, environ, program: str) -> str | None:
    """An executable's path where the partition's and the environment's modules are loaded."""
    if not (partition.local_env.modules or environ.modules or environ.env_vars):
        return shutil.which(program)
    return _which_loaded("\n".join(emit_loadenv_commands(partition.local_env, environ)), program)


@functools.cache
def _which_loaded(load: str, program: str) -> str | None:
    done = osext.run_command(f"{load}\ncommand -v {shlex.quote(program)}", shell=True)
    path = done.stdout.strip().splitlines()[-1:]
    return path[0] if done.returncode == 0 and path and path[0].startswith("/") else None
