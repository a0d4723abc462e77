"""The one mixin that every check uses: what a test case must do so that it cannot pass silently.

A check declares its benchmark, program, figures, placement, conditions and cost class. The mixin
turns the placement into tasks and their binding, asks the provider for the program, runs all
samples in one job, reads them in the sanity phase, and holds the figures against their
references in the performance phase.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, NoReturn

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.osext as osext
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.backends import getlauncher
from reframe.core.runtime import emit_loadenv_commands, runtime
from reframe.utility import nodelist_abbrev

from plumbline import parse
from plumbline.check import outcomes, samples, scratch, states, verdict
from plumbline.check.parameters import DEFAULT, NONE, references
from plumbline.check.result import CaseResult, Measurement, subject_of
from plumbline.check.samples import Run
from plumbline.core import paths, units
from plumbline.core.errors import Fault
from plumbline.core.text import near
from plumbline.parse import Figure, Fom, outputs
from plumbline.placement import binding, placement
from plumbline.placement.topology import PlacementError, Topology
from plumbline.reference import waivers
from plumbline.reference.row import Case
from plumbline.site import configuration, load, reframe_patches, slurm_jobs
from plumbline.software import providers

#: What was said to be left out of a session that is distributed over nodes.
_LEFT_OUT: set[str] = set()

_LOADED = Path(__file__).with_name("loaded.sh")


class NotLoaded(providers.NotProvided):
    """An environment whose modules the module system does not load."""


class Benchmark(rfm.RunOnlyRegressionTest):
    """What every check has. Declare ``placement`` as a parameter (or set it), ``variant`` too
    where there is a choice of the system file's ``extras.variants``, and override
    :meth:`figures`, :meth:`prepare` where the program needs options, an input file or a folder,
    :meth:`verify` where its output says what it ran with, and :meth:`derive` where a figure is
    made of several that are printed.

    In ``program``, ``environ_features``, ``conditions`` and ``headline``, the name of a parameter,
    variable or property in braces stands for its value: ``program = "osu_{test}"``. A parameter
    ``scale`` of :func:`~plumbline.check.parameters.published_scales` sets nodes and tasks."""

    # Of ReFrame's own, which has no types.
    prerun_cmds: list[str]
    postrun_cmds: list[str]
    executable_opts: list[str]
    extra_resources: dict[str, dict[str, str]]
    num_cpus_per_task: int | None

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

    #: What the environment must have beside the benchmark, several where any of them will do; each
    #: is a feature, or several with blanks between them.
    #:
    #: :type: :class:`List[str]`
    environ_features = builtins.variable(typ.List[str], value=[""])

    #: Nodes of the job, in placements that leave their number open; 0 stands for two where the
    #: partition has them, or else one.
    #:
    #: :type: :class:`int`
    nodes = builtins.variable(int, value=1)

    #: Tasks on each node, in the placement ``tasks-per-node``.
    #:
    #: :type: :class:`int`
    tasks_per_node = builtins.variable(int, value=1)

    #: Whether one process goes through GPUs, their pairs or NUMA domains by itself.
    #:
    #: :type: :class:`bool`
    one_process = builtins.variable(typ.Bool, value=False)

    #: Whether each task of a run prints an output of its own.
    #:
    #: :type: :class:`bool`
    output_per_task = builtins.variable(typ.Bool, value=False)

    #: Which of a run's files holds the figures: ``sample-<run>.<suffix>``.
    #:
    #: :type: :class:`str`
    output_suffix = builtins.variable(str, value="out")

    #: Options that the first sample has beside the others'.
    #:
    #: :type: :class:`List[str]`
    first_sample_opts = builtins.variable(typ.List[str], value=[])

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

    #: Seconds that all samples together take on an idle machine, roughly, for an estimate.
    #:
    #: :type: :class:`int`
    usual_seconds = builtins.variable(int, value=4)

    #: Seconds that the first sample may take beside the others' (a validation).
    #:
    #: :type: :class:`int`
    first_sample_seconds = builtins.variable(int, value=0)

    #: Shell commands before and after the program in each run, on the job's first node; ``$run``
    #: is the run's name.
    #:
    #: :type: :class:`List[str]`
    before_sample = builtins.variable(typ.List[str], value=[])
    after_sample = builtins.variable(typ.List[str], value=[])

    #: Figures that the closing table shows of this check.
    #:
    #: :type: :class:`List[str]`, names of performance variables
    headline = builtins.variable(typ.List[str], value=[])

    #: Placement, and names of the performance variables that :meth:`figures` declares, for
    #: `plumbline refs`.
    placed = builtins.variable(str, value="")
    declared = builtins.variable(typ.List[str], value=[])

    #: Tags of some test cases only: tag -> parameter -> the values with which a case has it.
    #:
    #: :type: :class:`Dict[str, Dict[str, List[str]]]`
    tags_where = builtins.variable(typ.Dict[str, typ.Dict[str, typ.List[str]]], value={})

    # The samples' output is kept for whoever doubts a verdict.
    keep_files: ClassVar = ["sample-*", "samples.txt"]

    # ReFrame's own comparison is recorded; the verdict, with its source, is `judge`'s.
    strict_check = False

    def figures(self) -> list[Figure]:
        """The figures of merit that every sample must print; all others are ignored."""
        raise Fault(
            f"{type(self).__name__}: figures() is not declared", code="check.wrong-declaration"
        )

    def figures_of(self, layout: placement.Layout) -> list[Figure]:
        """The figures of one run: each declared one of everything that the run measures."""
        if not layout.at:
            return self.figures()
        return [figure._replace(at=at) for at in layout.at for figure in self.figures()]

    def optional(self) -> list[Figure]:
        """Figures that only some versions of the program print."""
        return []

    def verify(self, output: parse.Output) -> None:
        """Holds what the program says it ran with against what it was asked for.

        :raises ParseError: if it ran something else.
        """

    def derive(self, printed: dict[Figure, Fom]) -> Iterable[Fom]:
        """Figures that a run's printed ones make together, such as the mean of two directions."""
        return ()

    def doubts(self) -> Iterable[states.Notice]:
        """Warnings of this benchmark's own, about figures that each look well by themselves."""
        return ()

    def conditions_at(self, at: str) -> dict[str, str]:
        """The conditions of one of several things that a run measures."""
        gpu = re.fullmatch(r"gpu(\d+)", at)
        return {"at": at, **({"gpu": gpu[1]} if gpu else {})} if at else {}

    def prepare(self) -> None:
        """Options, input files and folders of the program; runs once the layout is known."""

    @builtins.run_after("init", always_last=True)
    def declare(self):
        """Holds the declaration against what Plumbline knows, and selects by it."""
        name = type(self).__name__
        self.fill_in()
        if not placement.known(self.placement):
            raise Fault(
                f"check {name}: no placement {self.placement!r}; {placement.meant(self.placement)}",
                code="check.wrong-declaration",
            )
        if self.benchmark not in parse.BENCHMARKS:
            told = near(self.benchmark, parse.BENCHMARKS)
            raise Fault(
                f"check {name}: no parser for benchmark {self.benchmark!r}; {told}",
                code="check.wrong-declaration",
            )
        if not self.tags & set(configuration.TAGS):
            raise Fault(
                f"check {name}: no cost class; tag it {', '.join(configuration.TAGS)}",
                code="check.wrong-declaration",
            )
        if self.nodes < 0 or self.tasks_per_node < 1:
            raise Fault(
                f"check {name}: nodes must be at least 0, tasks_per_node at least 1",
                code="check.wrong-declaration",
            )
        if self.num_samples < 1 or self.num_warmups < 0:
            raise Fault(
                f"check {name}: num_samples must be at least 1, num_warmups at least 0",
                code="check.wrong-declaration",
            )
        for key in set(self.conditions) - set(references().tables.conditions):
            raise Fault(
                f"check {name}: condition {key!r} is not in reference/conditions.yaml",
                code="check.wrong-declaration",
            )
        for figure in self.figures():
            references().fom(self.benchmark, figure.metric)
            self.declared = [*self.declared, figure.variable]
        self.placed = self.placement
        self.tags |= {self.benchmark}
        wanted = [placement.feature(self.placement)]
        if self.under != DEFAULT:
            wanted.append(configuration.variant_feature(self.under))
        if "full" in self.tags:
            wanted.append("full")
        here = NONE not in reframe_patches.parameter_values(self)
        self.valid_systems = [" ".join(f"+{feature}" for feature in wanted)] if here else []
        if self.pinned_to:
            self.valid_systems = [self.pinned_to.partition] if self.fits_one_node() else []
        self.valid_prog_environs = [
            " ".join(f"+{feature}" for feature in [self.benchmark, *features.split()])
            for features in self.environ_features
        ]
        self.executable = self.program
        self.limit_time(1)
        self.result = CaseResult(self.benchmark, self.program, placement=self.placement)
        self.note_settings()

    @builtins.run_after("run")
    def note_settings(self) -> None:
        """Notes what the test case runs with, as far as it is settled by now: a check may size
        its run until the moment before it starts."""
        self.result.conditions = {**self.conditions}
        self.result.samples, self.result.warmups = self.num_samples, self.num_warmups

    def fill_in(self) -> None:
        """Puts values in the place of their names in braces, and adds the tags of this test case.

        A condition may hold any text, so that braces around anything but a name are text there.

        :raises Fault: if the check has nothing of such a name, or braces are left elsewhere.
        """

        def filled(text: str) -> str:
            return re.sub(r"\{([A-Za-z]\w*)\}", lambda found: str(getattr(self, found[1])), text)

        def filled_name(text: str) -> str:
            if "{" in (name := filled(text)) or "}" in name:
                raise ValueError(f"{text!r}: braces hold the name of a parameter or variable")
            return name

        try:
            self.program = filled_name(self.program)
            self.environ_features = [filled_name(text) for text in self.environ_features]
            self.conditions = {key: filled(text) for key, text in self.conditions.items()}
            self.headline = [filled_name(text) for text in self.headline]
            for tag, where in self.tags_where.items():
                if all(getattr(self, name) in values for name, values in where.items()):
                    self.tags |= {tag}
        except (AttributeError, ValueError) as err:
            raise Fault(
                f"check {type(self).__name__}: {err}", code="check.wrong-declaration"
            ) from None
        if isinstance(scale := getattr(self, "scale", None), tuple):
            self.nodes, self.tasks_per_node = scale

    @property
    def pinned_to(self) -> reframe_patches.PinnedTo | None:
        """The node that the test case is for, where ReFrame's ``--distribute`` made it."""
        return reframe_patches.pinned_to(self)

    def fits_one_node(self) -> bool:
        """Whether the test case can be one of a single node; says so once where it cannot."""
        name = f"{type(self).__name__}, placement {self.placement}"
        if placement.fits_one_node(self.placement, self.nodes):
            return True
        if name not in _LEFT_OUT:
            _LEFT_OUT.add(name)
            print(
                f"plumbline: --distribute gives each test case one node: left out, as it takes "
                f"more: {name}",
                file=sys.stderr,
            )
        return False

    def limit_time(self, layouts: int) -> None:
        """Sets the job's time limit by its runs."""
        runs = (self.num_samples + self.num_warmups) * layouts
        seconds = runs * self.sample_seconds + self.first_sample_seconds + 60
        self.time_limit = f"{math.ceil(seconds * self.slowdown)}s"

    @builtins.run_after("setup")
    def place(self):
        """From placement and topology to tasks, program, launcher and binding."""
        try:
            self.arrange()
        finally:
            # Also of one that is skipped.
            self.note_settings()

    def arrange(self) -> None:
        """What :meth:`place` does before the settings are noted."""
        extras = self.current_partition.extras
        try:
            self.topology = topology_of(self.current_partition)
            self.layouts = self.lay_out(self.current_partition, self.topology)
            self.hold_against_nodes()
            self.check_stage_folder()
            found = providers.find(
                self.current_environ.extras.get("provider", "path"),
                self.program,
                functools.partial(_which, self.current_partition, self.current_environ),
                f"{self.current_system.name}:{self.current_environ.name}",
            )
            launcher = self.current_environ.extras.get("launcher")
            if launcher or self.job.launcher.registered_name == "local":
                self.job.launcher = getlauncher(launcher or found.launcher)()
            if self.job.launcher.registered_name == found.launcher != "local":
                self.job.launcher.path = found.launcher_path
            # Whose an mpiexec is its name does not tell: the environment does.
            manager = self.current_environ.extras.get("process_manager")
            manager = manager or self.job.launcher.registered_name
            bindings = self.bind_tasks(manager)
            self.hold_against_tools(bindings)
        except (PlacementError, providers.NotProvided, binding.BindingError) as err:
            if isinstance(err, NotLoaded) and not self.is_dry_run():
                # What the system file names and the system has not is a fault of one of them.
                raise outcomes.Refused(str(err), code=err.code) from None
            self.leave_out(str(err), err.code)
        self.result.build = {**found.build}
        self.found = found
        if self.shared:
            # One sample tells as little as five would, and takes a machine's time that others use.
            self.num_samples, self.num_warmups = 1, 0
            self.env_vars.update(load.YIELDING)
            self.conditions = {"busy": "yes", **self.conditions}
        self.limit_time(len(self.layouts))
        self.time_limit = max(self.time_limit, extras.get("least_time", 0))
        self.set_tasks()
        variant = {}
        if self.under != DEFAULT:
            variant = extras["variants"][self.under]
            self.conditions = {"variant": self.under, **self.conditions}
        self.conditions = {
            **extras.get("conditions", {}),
            **variant.get("conditions", {}),
            **self.conditions,
        }
        self.env_vars.update({**found.env_vars, **variant.get("env_vars", {})})
        if len(bindings) == 1:
            self.env_vars.update(bindings[0].env_vars)
        for bound in bindings:
            for name, text in bound.files.items():
                self.write_file(name, text)
        shutil.copy(binding.WRAPPER, self.stagedir)
        shutil.copy(_LOADED, self.stagedir)
        launcher_options = [*map(shlex.quote, variant.get("launcher_options", []))]
        self.prepare_launcher(bindings, launcher_options)
        check = modules_check("./loaded.sh", self.current_partition, self.current_environ)
        self.prerun_cmds = [*(f"{command} || exit" for command in check), *self.prerun_cmds]
        self.prepare()
        self.sample_command(found.path, bindings)

    def lay_out(self, partition, topology: Topology) -> tuple[placement.Layout, ...]:
        """The layouts that the job measures one after the other.

        :raises PlacementError: if the topology does not have the placement.
        """
        several = "off-node" in partition.features and not self.pinned_to
        nodes = self.nodes or (2 if several else 1)
        return placement.lay_out(
            self.placement, topology, nodes, self.tasks_per_node, self.one_process
        )

    def bind_tasks(self, manager: str) -> list[binding.Binding]:
        """The binding of each layout by a process manager.

        :raises BindingError: if it cannot express one.
        """
        return [binding.bind(layout, manager, self.topology) for layout in self.layouts]

    def hold_against_tools(self, bindings: list[binding.Binding]) -> None:
        """Skips the test case where this machine has not got what places memory.

        :raises BindingError: with the mend.
        """
        if not self.current_partition.scheduler.is_local:
            return
        numactl = shutil.which("numactl")
        needed = any("numactl" in (*bound.options, *bound.task) for bound in bindings)
        if needed and not numactl:
            raise binding.BindingError(
                "numactl is not on PATH: apt-get install numactl", code="binding.numactl-missing"
            )
        # A program that goes through the domains by itself places memory as numactl does.
        if numactl and (needed or self.one_process):
            domain = self.topology.os_number(min(self.topology.by_numa()))
            done = osext.run_command([numactl, f"--membind={domain}", "true"])
            if done.returncode:
                raise binding.BindingError(
                    f"memory cannot be bound to NUMA domain {domain}{last_words(done.stderr)}: "
                    f"containers often forbid it: start this one with --cap-add=SYS_NICE, or "
                    f"measure outside it",
                    code="binding.memory-policy-refused",
                )

    @property
    def on_this_machine(self) -> bool:
        """Whether the job runs here and now, beside whatever else does."""
        partition = self.current_partition
        here = partition is not None and load.is_here(partition)
        return here and configuration.ON_NODE not in os.environ and not self.is_dry_run()

    @property
    def shared(self) -> bool:
        """Whether the job's cores have other processes too, so that its figures tell little."""
        if not self.on_this_machine:
            return False
        wanted = self.layout.num_tasks * (self.layout.num_cpus_per_task or 1)
        return load.shared(wanted, len(self.topology.cores))

    @property
    def slowdown(self) -> float:
        """How many times longer the job may take for what else runs beside it."""
        return load.slowdown(len(self.topology.cores)) if self.on_this_machine else 1.0

    @property
    def under(self) -> str:
        """The variant that the job runs under."""
        return getattr(self, "variant", DEFAULT)

    @property
    def layout(self) -> placement.Layout:
        """The first layout; the others have as many tasks and nodes."""
        return self.layouts[0]

    def hold_against_nodes(self) -> None:
        """Skips the test case where the partition has not the nodes for it.

        :raises PlacementError: with the reason.
        """
        partition = self.current_partition
        if self.layout.num_nodes > 1 and "off-node" not in partition.features:
            raise PlacementError(
                f"{self.program} is to run on {self.layout.num_nodes} nodes, and partition "
                f"{partition.fullname} is one: run it on a partition with more",
                code="placement.too-few-nodes",
            )
        if self.layout.racks > 1 and not partition.extras.get("rack_pattern"):
            raise PlacementError(
                "which rack a node is in is not known: set the partition's extras.rack_pattern",
                code="placement.racks-unknown",
            )

    def check_stage_folder(self) -> None:
        """Skips the test case whose stage folder the partition's nodes can only read.

        :raises PlacementError: with the fix.
        """
        stage = Path(self.stagedir).resolve()
        for folder in self.current_partition.extras.get("read_only_on_nodes", []):
            if stage.is_relative_to(folder):
                raise PlacementError(
                    f"the results would go to {stage}, and the compute nodes of "
                    f"{self.current_partition.fullname} can only read {folder}: set "
                    f"PLUMBLINE_RESULTS to a folder that they can write",
                    code="scratch.read-only-on-nodes",
                )

    def set_tasks(self) -> None:
        """Tells ReFrame, and its launcher already now, how many tasks and nodes there are."""
        self.num_tasks = self.job.num_tasks = self.layout.num_tasks
        self.num_tasks_per_node = self.job.num_tasks_per_node = self.layout.num_tasks_per_node
        self.num_cpus_per_task = self.job.num_cpus_per_task = self.layout.num_cpus_per_task
        # Within a job that has the node for a session of its own, the steps are the job's.
        scheduler = self.current_partition.extras.get("x_within")
        scheduler = scheduler or self.current_partition.scheduler.registered_name
        if scheduler in ("slurm", "squeue", "lsf"):
            # srun(1): --cpus-per-task implies --exact, and a CPU beyond the step's own is refused.
            # LSF: ReFrame asks for affinity, which a job of whole nodes (-nnodes) may not.
            self.num_cpus_per_task = self.job.num_cpus_per_task = None
        elif scheduler in ("pbs", "pbspro"):
            # PBS keeps a job to the CPUs that it asks for: all of them.
            share = len(self.topology.cores) // self.layout.num_tasks_per_node
            self.num_cpus_per_task = self.job.num_cpus_per_task = share
        if self.layout.vendor:
            self.num_gpus_per_node = len(self.topology.gpus)

    def prepare_launcher(self, bindings: list[binding.Binding], options: list[str]) -> None:
        """Gives the launcher its options, those of a variant first."""
        bound = samples.options(bindings)
        if self.job.launcher.registered_name == "local":
            # ReFrame's local launcher drops its options; a modifier stays before the program.
            self.job.launcher.modifier, *self.job.launcher.modifier_options = bound
        else:
            self.job.launcher.options = [*options, *bound]

    def sample_command(self, path: str, bindings: list[binding.Binding]) -> None:
        """Makes the job a loop over the samples around the launcher's own command."""
        loop = samples.loop(
            self.layouts,
            bindings,
            self.num_warmups + self.num_samples,
            self.num_warmups,
            self.before_sample,
            self.after_sample,
            self.output_per_task,
        )
        self.put_command("./task.sh", path, loop)

    def put_command(self, start: str, path: str, loop: samples.Loop) -> None:
        """Puts the program's command into a loop.

        :arg start: what stands before its words, behind the launcher's command.
        :arg path: of the program.
        """
        first = ""
        if self.first_sample_opts:
            words = " ".join(map(shlex.quote, self.first_sample_opts))
            first = f"$([ $sample != 0 ] || echo {words})"
        self.prerun_cmds = [*self.prerun_cmds, *loop.before]
        self.executable = start
        self.executable_opts = [
            "$sample",
            *loop.words,
            shlex.quote(path),
            *([first] if first else []),
            *map(shlex.quote, self.executable_opts),
            *loop.redirections,
        ]
        self.postrun_cmds = [*loop.after, *self.postrun_cmds]

    def run_here(self, folder: Path, seconds: float) -> None:
        """Runs the program once on this machine, alone, in the environment that the job has.

        :raises subprocess.SubprocessError: if it fails, or takes longer.
        """
        lines = emit_loadenv_commands(self.current_partition.local_env, self.current_environ)
        variables = {"OMP_NUM_THREADS": "1", **self.env_vars}
        lines += [f"export {key}={shlex.quote(str(value))}" for key, value in variables.items()]
        script = "\n".join([*lines, f"exec {shlex.quote(self.found.path)}"])
        subprocess.run(
            ["bash", "-c", script], cwd=folder, capture_output=True, timeout=seconds, check=True
        )

    def write_file(self, name: str, text: str) -> None:
        """Writes an input file into the stage folder."""
        (Path(self.stagedir) / name).write_text(text, encoding="utf-8")

    def make_scratch(
        self, needed: int, files: int = 1, direct_io: bool = False, file_system: str = "scratch"
    ) -> Path:
        """A folder of this test case's own, in the partition's scratch or a file system of it.

        The job removes it at its end, whatever the end; :meth:`tidy` where the job could not.

        :arg needed: bytes that the test case will write, in so many files; it is skipped where
            fewer are free.
        :arg direct_io: skips the test case where the file system has no direct I/O.
        :arg file_system: of one of the partition's ``extras.file_systems``, or ``scratch``.
        """
        chosen = self.storage(file_system)
        try:
            folder = scratch.own_folder(chosen.folder, Path(self.stagedir).name)
            removal = f"rm -rf -- {shlex.quote(str(folder))}"
            if chosen.node_local:
                # Each node has its own, which only the job's own tasks see.
                launch = f"{self.job.launcher.run_command(self.job)} ./task.sh - "
                removal = launch + removal
                made = f"{launch}{scratch.making(folder)} || exit"
                self.prerun_cmds = [*self.prerun_cmds, f"trap {shlex.quote(removal)} EXIT", made]
            else:
                self.scratch_folder = folder
                self.prerun_cmds = [*self.prerun_cmds, f"trap {shlex.quote(removal)} EXIT"]
                scratch.make(folder, needed, files, direct_io)
        except scratch.ScratchError as err:
            self.leave_out(str(err), err.code)
        # Another disk is another measurement, whatever its name.
        self.result.build["scratch"] = scratch.kind(folder.parent)
        if chosen.resource:
            self.extra_resources = {**self.extra_resources, chosen.resource: {}}
        self.conditions = {**chosen.conditions, **self.conditions}
        return folder

    def storage(self, file_system: str) -> scratch.FileSystem:
        """What a file system of the partition is; the test case is skipped where it has none."""
        try:
            return scratch.file_system(self.current_partition.extras, file_system)
        except scratch.ScratchError as err:
            self.leave_out(str(err), err.code)

    def tidy(self) -> None:
        """Removes what the job may have left, also after it was killed."""
        folder = getattr(self, "scratch_folder", None)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def leave_out(self, reason: str, code: str) -> NoReturn:
        """Skips the test case with a reason, its fix and its code; fails it under strict rules."""
        if os.environ.get("PLUMBLINE_STRICT") == "1":
            raise outcomes.Refused(f"skipped under strict rules: {reason}", code)
        raise outcomes.Skip(reason, code)

    @builtins.run_before("run")
    def note_start(self):
        """Keeps when the job was submitted, by two clocks: one of them may be set meanwhile."""
        self.submitted = time.time(), time.monotonic()

    @builtins.sanity_function
    def trusted(self):
        """Every sample ended well, where the placement says, and printed every figure once."""
        figures = self.read_samples()
        shown = {*self.headline}
        self.result.figures = {
            figure: Measurement(
                values,
                self.case_of(figure),
                self.unit_of(figure.metric),
                bool({figure.variable, figure._replace(at="").variable} & shown),
            )
            for figure, values in figures.items()
        }
        return True

    def read_samples(self) -> dict[Figure, list[float]]:
        """The declared figures of every sample that is no warm-up.

        :raises Invalid: if one run cannot be trusted; its text names the file.
        """
        self.result.notices = self.read_stderr()
        ended = self.read_ends()
        figures: dict[Figure, list[float]] = {}
        for run in self.runs():
            try:
                for figure, value in self.read_run(run, ended).items():
                    values = figures.setdefault(figure, [])
                    if run.sample >= self.num_warmups:
                        values.append(value)
            except FileNotFoundError as fault:
                said = last_words(text_of(Path(self.stagedir, run.err)))
                missing = Path(fault.filename).name
                raise outcomes.Invalid(
                    f"{missing} was not written{said}", code="output.file-missing"
                ) from None
            except OSError as fault:
                raise outcomes.Invalid(
                    f"{_said_of_file(fault)}", code="output.file-unreadable"
                ) from None
            except (parse.ParseError, binding.BindingMismatch) as fault:
                raise outcomes.Invalid(f"{run.out}: {fault}", code=fault.code) from None
        for figure, values in figures.items():
            if len(values) != self.num_samples:
                raise outcomes.Invalid(
                    f"{figure.variable} is not printed by every sample",
                    code="output.figure-missing",
                )
        return figures

    def runs(self) -> Iterable[Run]:
        """The runs of the job, in order."""
        return samples.runs(self.layouts, self.num_warmups + self.num_samples)

    def read_ends(self) -> dict[str, samples.RunEnd]:
        """How each run ended.

        :raises Invalid: if none did, or what tells of it is garbled.
        """
        stagedir = Path(self.stagedir)
        try:
            ended = samples.ends(stagedir)
            since, ticks = self.submitted
            now, passed = time.time(), time.monotonic() - ticks
            samples.hold_within(ended, since, now, jumped=now - since - passed)
        except samples.SampleError as err:
            raise outcomes.Invalid(f"{err}", code=err.code) from None
        if not ended:
            raise outcomes.Invalid(f"no sample ended{self.said_of_job()}", code="output.no-sample")
        self.result.seconds = [end.seconds for end in ended.values()]
        return ended

    def read_stderr(self) -> list[states.Notice]:
        """What the standard error of the job and of its runs tells of, see ``stderr.yaml``."""
        stagedir = Path(self.stagedir)
        files = [stagedir / self.job.stderr, *sorted(stagedir.glob("sample-*.err"))]
        texts = [(path.name, text_of(path)) for path in files]
        return states.of_stderr(texts, states.patterns(paths.reference()))

    def said_of_job(self) -> str:
        """The last line that the job wrote, and what Slurm says of it, for a message."""
        path = Path(self.stagedir, self.job.stderr)
        left = path.exists()
        said = last_words(text_of(path)) if left else f", and the job left no {path.name}"
        of_slurm = self.current_partition.scheduler.registered_name == "slurm"
        return said + (f"; Slurm says {slurm_jobs.said(self.job)}" if of_slurm else "")

    def read_run(self, run: Run, ended: dict[str, samples.RunEnd]) -> dict[Figure, float]:
        """The declared figures of one run: of tasks that were where they should be.

        :raises Invalid: if it did not end well.
        :raises ParseError: if its output cannot be trusted.
        :raises BindingMismatch: if a task ran elsewhere.
        """
        stagedir = Path(self.stagedir)
        said = outputs.read(stagedir / run.err, errors="replace")
        if run.name not in ended:
            raise outcomes.Invalid(
                f"sample {run.name} never ended{last_words(said)}", code="output.sample-unfinished"
            )
        status = ended[run.name].status
        if status:
            raise outcomes.Invalid(
                f"sample {run.name} ended with exit code {status}{last_words(said)}",
                code="output.exit-code",
            )
        tasks = binding.seen(said)
        self.hold_against_racks(run.layout, tasks)
        binding.prove(run.layout, tasks)
        if self.pinned_to:
            binding.prove_nodes([self.pinned_to.node], tasks, self.pinned_to.others)
        self.result.tasks = tasks
        self.confirm_nodes(run.layout, said)
        for host, facts in binding.host_facts(said).items():
            self.result.hosts.setdefault(host, {}).update(facts)
        parse.hold_against_errors(self.benchmark, said)
        printed: dict[Figure, Fom] = {}
        if self.output_per_task:
            for rank, at in enumerate(run.layout.at):
                printed |= self.read_output(run.layout, stagedir / run.out_of_rank(rank), at)
        else:
            at = run.layout.at[0] if len(run.layout.at) == 1 and not self.one_process else ""
            path = (stagedir / run.out).with_suffix(f".{self.output_suffix}")
            printed = self.read_output(run.layout, path, at)
        printed |= {fom.figure: fom for fom in self.derive(printed)}
        wanted = self.figures_of(run.layout)
        wanted += [figure for figure in self.optional() if figure in printed]
        return {figure: self.read_figure(printed, figure) for figure in wanted}

    def read_output(self, layout: placement.Layout, path: Path, at: str) -> dict[Figure, Fom]:
        """What one output holds.

        :arg at: what was measured, where the program itself cannot tell.
        :raises ParseError: if it cannot be trusted.
        """
        try:
            output = parse.parse_file(self.benchmark, path)
        except parse.ParseError as err:
            if err.times != layout.num_tasks or err.times < 2:
                raise
            raise parse.ParseError(
                f"{err}: {err.times} single ranks would print it so; likely cause: "
                f"{binding.OTHER_MPI}",
                code="output.task-count",
            ) from None
        if output.tasks not in (None, layout.num_tasks):
            raise parse.ParseError(
                self.said_of_tasks(output.tasks, layout), code="output.task-count"
            )
        self.verify(output)
        self.result.version = output.version
        return {
            (found := dataclasses.replace(fom, at=fom.at or at)).figure: found
            for fom in output.foms
        }

    def said_of_tasks(self, reported: int, layout: placement.Layout) -> str:
        """What was seen of tasks that the program counts otherwise, and what may be the cause, the
        likeliest first; the list of nodes, which may be long, last."""
        seen = self.result
        if reported > layout.num_tasks:
            causes = ["the output is that of another run"]
        else:
            causes = [f"each task runs alone: {binding.OTHER_MPI}"]
            causes.insert(reported == 1, "the program takes fewer tasks than it is given")
        return (
            f"{self.program} reports {reported} tasks, {len(seen.tasks)} of "
            f"{layout.num_tasks} started; possible causes, the likeliest first: "
            f"{'; '.join(causes)}; tasks on {nodelist_abbrev(seen.nodes) or 'no node'}"
        )

    def confirm_nodes(self, layout: placement.Layout, said: str) -> None:
        """Compares what nodes report of themselves with the partition's entry in the system file.

        :raises TopologyMismatch: on a difference.
        """
        partition = self.current_partition
        devices = [device.info for device in partition.devices]
        told = binding.Told(partition.processor.info, devices, partition.extras)
        file = paths.systems() / f"{self.current_system.name}.yaml"
        for host, node in binding.nodes(said):
            try:
                self.result.confirmed[host] = binding.confirm(told, host, node, bool(layout.vendor))
            except binding.TopologyMismatch as err:
                raise binding.TopologyMismatch(
                    f"{file}, partition {partition.name}: {err}: correct the entry, or the node",
                    code="topology.mismatch",
                ) from None

    def hold_against_racks(self, layout: placement.Layout, tasks: list[binding.Seen]) -> None:
        """Skips the test case whose nodes the scheduler took from fewer racks than it needs."""
        if layout.racks == 1:
            return
        pattern = re.compile(self.current_partition.extras["rack_pattern"])
        racks = {match[1] for task in tasks if (match := pattern.match(task.host))}
        if len(racks) < layout.racks:
            self.leave_out(
                f"all nodes were of rack {', '.join(racks) or '?'}: name nodes of "
                f"{layout.racks} racks to the scheduler (ReFrame's -J)",
                code="placement.one-rack",
            )

    def read_figure(self, found: dict[Figure, Fom], figure: Figure) -> float:
        """One declared figure of a run, in its registered unit: printed, finite, positive."""
        fom = found.get(figure)
        if fom is None:
            raise parse.ParseError(
                f"{figure.variable} is not printed", code="output.figure-missing"
            )
        registered = references().fom(self.benchmark, fom.metric)
        try:
            factor = units.factor(fom.unit, registered.unit)
        except units.UnitError as err:
            raise parse.ParseError(f"{fom.variable}: {err}", code="output.unit") from None
        # A share that overlaps nothing is an honest zero, a bandwidth is not.
        least = 0 if references().rule(registered).better == "neither" else math.ulp(0)
        if not (math.isfinite(fom.value) and fom.value >= least):
            fault = "not a number (NaN)" if math.isnan(fom.value) else f"{fom.value:g} {fom.unit}"
            raise parse.ParseError(
                f"{fom.variable} is {fault}: it must be finite and positive",
                code="output.not-positive",
            )
        return fom.value * factor

    def unit_of(self, metric: str) -> str:
        """The registered unit of a metric."""
        return references().fom(self.benchmark, metric).unit

    def cost_on(self, partition) -> tuple[int, float]:
        """Nodes of the job on a partition, and the seconds that its time limit allows.

        :raises PlacementError: if the partition does not have the placement.
        """
        layouts = self.lay_out(partition, topology_of(partition))
        runs = (self.num_samples + self.num_warmups) * len(layouts)
        seconds = runs * self.sample_seconds + self.first_sample_seconds + 60
        return layouts[0].num_nodes, seconds

    def case_of(self, figure: Figure) -> Case:
        """The conditions of one figure of this test case, for the references."""
        layout = next((known for known in self.layouts if figure.at in known.at), self.layout)
        conditions = {**self.conditions, **self.conditions_at(figure.at)}
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

    @builtins.run_before("performance")
    def judge(self):
        """Gives each figure its verdict, and ReFrame the same numbers for its own store."""
        if self.is_dry_run():
            return
        if not self.result.figures:
            raise outcomes.Invalid(
                "ReFrame was told to leave out the sanity phase", code="case.phase-skipped"
            )
        self.result.shared = self.shared
        self.result.judgements = verdict.judge(self.result, self.subject)
        self.result.notices += [*verdict.notices(self.result), *self.doubts()]
        for name, (value, unit) in verdict.values_for_reframe(self.result).items():
            self.perf_variables[name] = sn.make_performance_function(sn.defer(value), unit)
        bounds = verdict.bounds_for_reframe(self.result)
        self.reference = {self.current_partition.fullname: bounds}

    @builtins.run_after("performance")
    def assert_verdicts(self):
        """Fails the test case on each figure outside its bounds or above its ceiling; where
        waivers cover them all, as a known fault."""
        if not self.is_dry_run():
            for name in verdict.waived_variables(self.result):
                # ReFrame's own store has its verdict beside the value.
                self.perfvalues[f"{self.current_partition.fullname}:{name}"][-1] = "xfail"
            verdict.hold(self.result, self.subject)

    @property
    def subject(self) -> waivers.Subject:
        """The test case as waivers know it."""
        return subject_of((self, self.current_partition, self.current_environ))


def topology_of(partition) -> Topology:
    """The topology of a ReFrame partition, within the CPUs that may be used.

    :raises PlacementError: if it is not known.
    """
    return Topology.of_partition(
        partition.processor.info,
        [device.info for device in partition.devices],
        partition.extras,
    )


def text_of(path: Path) -> str:
    """What a job wrote to a file of standard error; empty where it left none.

    :raises Invalid: if it cannot be read, or is too large.
    """
    try:
        return outputs.read(path, errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as fault:
        raise outcomes.Invalid(f"{_said_of_file(fault)}", code="output.file-unreadable") from None


def _said_of_file(fault: OSError) -> str:
    return f"{Path(fault.filename).name}: {fault.strerror}" if fault.filename else str(fault)


#: Characters of a line that a message quotes.
_LONGEST = 300


def last_words(stderr: str) -> str:
    """The last line that a program wrote, or its start, after a colon, for a message."""
    lines = [
        line.strip()
        for line in stderr.splitlines()
        if not line.startswith("plumbline-")
        and re.search(r"\w", line)
        # srun(1) writes this after the program's own words.
        and not re.match(r"srun: error: .*Exited with exit code \d+$", line)
    ]
    return f": {lines[-1][:_LONGEST]}" if lines else ""


def modules_check(script: str, partition, environ) -> list[str]:
    """The command that fails where modules are not loaded that ReFrame loaded before, of a
    partition or an environment; none without modules.

    :arg script: path of ``loaded.sh``.
    """
    told = [*partition.local_env.modules_detailed, *environ.modules_detailed]
    names = [module["name"] for module in told if not module["collection"]]
    if not names or runtime().modules_system.name not in ("envmod", "lmod"):
        return []
    where = f"environment {environ.name} of {partition.fullname}"
    return [shlex.join([script, where, *names])]


def _which(partition, environ, program: str) -> str | None:
    """An executable's path where the partition's and the environment's modules are loaded."""
    if not (partition.local_env.modules or environ.modules or environ.env_vars):
        return shutil.which(program)
    commands = emit_loadenv_commands(partition.local_env, environ)
    commands += modules_check(str(_LOADED), partition, environ)
    return _which_loaded(" &&\n".join(commands), program)


#: Exit code of a shell that could not load what it was told to: that of ``loaded.sh``.
_NOT_LOADED = 64


@functools.cache
def _which_loaded(load: str, program: str) -> str | None:
    # As the job script does it: modules may be a function that only bash has.
    script = f"{{ {load}\n}} || exit {_NOT_LOADED}\ncommand -v {shlex.quote(program)}"
    done = osext.run_command(["bash", "-c", script])
    if done.returncode == _NOT_LOADED:
        told = " ".join(done.stderr.split())
        raise NotLoaded(
            f"its modules could not be loaded: {told or 'nothing was said of it'}",
            code="build.modules-not-loaded",
        )
    path = done.stdout.strip().splitlines()[-1:]
    return path[0] if done.returncode == 0 and path and path[0].startswith("/") else None
