"""A declared check on a partition: where it runs, what it starts, and the script of its job.

A placement becomes tasks and their binding, the provider of the environment finds the program, and
the script runs all samples one after the other.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import reframe.core.builtins as builtins
from reframe.core.backends import getlauncher
from reframe.core.runtime import emit_loadenv_commands

from plumbline.check import (
    declaration,
    duet,
    network,
    outcomes,
    rotation,
    samples,
    scratch,
    tasks,
    throttling,
)
from plumbline.check.parameters import DEFAULT
from plumbline.check.result import CaseResult
from plumbline.core import paths
from plumbline.placement import binding, placement
from plumbline.placement.topology import PlacementError, Topology
from plumbline.site import check_patches, configuration, host_load
from plumbline.software import providers

#: Checks that were reported as skipped in a session that is distributed over nodes.
_SKIPPED: set[str] = set()


class Placed(declaration.Declaration):
    """A declared check on a partition: its nodes and tasks, its program, and its job script."""

    # -- selection ------------------------------------------------------------------------------

    @builtins.run_after("init", always_last=True)
    def declare(self):
        """Validate the declaration, and select systems and environments by it."""
        declaration.fill_in(self)
        declaration.validate(self)
        self.declared = [figure.variable for figure in self.figures()]
        self.placed = self.placement
        self.tags |= {self.benchmark}
        self.valid_systems = declaration.systems(self)
        self.valid_prog_environs = declaration.environments(self)
        name = f"{type(self).__name__}, placement {self.placement}"
        if self.pinned_to and not self.valid_systems and name not in _SKIPPED:
            _SKIPPED.add(name)
            print(
                f"plumbline: {name}: skipped: --distribute gives each test case one node, and it "
                f"needs more",
                file=sys.stderr,
            )
        self.executable = self.program
        self.limit_time(1)
        self.result = CaseResult(
            self.benchmark,
            self.program,
            placement=self.placement,
            usual_seconds=self.usual_seconds,
        )
        self.note_settings()

    @builtins.run_after("run")
    def note_settings(self) -> None:
        """Copy the settings known so far to the result; a check may change its size until it
        starts."""
        self.result.conditions = {**self.conditions}
        self.result.samples, self.result.warmups = self.num_samples, self.num_warmups

    @property
    def pinned_to(self) -> check_patches.PinnedTo | None:
        """The node of the test case, if ReFrame's ``--distribute`` made it."""
        return check_patches.pinned_to(self)

    @property
    def active_variant(self) -> str:
        """The name of the variant that the job runs under."""
        return getattr(self, "variant", DEFAULT)

    def seconds_of(self, runs: int) -> float:
        """Return the seconds that a job of so many runs may take on an idle machine."""
        return runs * self.sample_seconds + self.first_sample_seconds + 60

    def limit_time(self, layouts: int) -> None:
        """Set the job's time limit by the number of its runs."""
        seconds = self.seconds_of((self.num_samples + self.num_warmups) * layouts)
        self.time_limit = f"{math.ceil(seconds * self.slowdown)}s"

    def cost_on(self, partition) -> tuple[int, float]:
        """Return the nodes of the job on a partition, and its time limit in seconds.

        :raises PlacementError: if the partition does not have the placement.
        """
        layouts = self.lay_out(partition, tasks.topology_of(partition))
        runs = (self.num_samples + self.num_warmups) * len(layouts)
        nodes = len(duet.current.all_nodes) if duet.current and self.duet_side else 0
        return nodes or layouts[0].num_nodes, self.seconds_of(runs)

    def skip_case(self, reason: str, code: str) -> NoReturn:
        """Skip the test case, or fail it under strict rules.

        :arg reason: with the fix.
        """
        if os.environ.get("PLUMBLINE_STRICT") == "1":
            raise outcomes.Refused(f"skipped under strict rules: {reason}", code)
        raise outcomes.Skip(reason, code)

    # -- nodes and tasks ------------------------------------------------------------------------

    @builtins.run_after("setup")
    def place(self):
        """Derive tasks, program, launcher and binding from placement and topology."""
        try:
            self.arrange()
        finally:
            # Also of a case that is skipped.
            self.note_settings()

    def arrange(self) -> None:
        """Place the tasks, and write the job's commands."""
        partition = self.current_partition
        try:
            self.topology = tasks.topology_of(partition)
            self.layouts = self.lay_out(partition, self.topology)
            tasks.check_nodes(partition, self.layout, self.program)
            tasks.check_gpus(partition, self.layout)
            if not self.only_shown:
                tasks.check_stage_folder(partition, self.stagedir)
            self.found = self.find_program()
            bindings = self.bind_tasks(self.choose_launcher())
            if host_load.is_local(self, partition) and not self.only_shown:
                tasks.check_memory_policy(bindings, self.topology, self.one_process)
        except (PlacementError, providers.NotProvided, binding.BindingError) as err:
            # The system file and the system contradict each other; or the GPUs of a machine that is
            # detected are there, and their driver failed. A skip would pass.
            broken = isinstance(err, tasks.NotLoaded) or (
                err.code == "binding.gpu-vendor-unknown" and partition.extras.get("detect")
            )
            if broken and not self.is_dry_run():
                raise outcomes.Refused(str(err), code=err.code) from None
            self.skip_case(str(err), err.code)
        self.result.build = {**self.found.build}
        self.result.shared = self.shared
        if self.result.shared:
            if not self.duet_side:
                # More samples would not make these figures better, and others need the machine.
                self.num_samples, self.num_warmups = 1, 0
            self.env_vars.update(host_load.YIELDING)
            self.conditions = {"busy": "yes", **self.conditions}
        self.set_tasks()
        launcher_options = self.apply_variant()
        self.env_vars.update(bindings[0].env_vars if len(bindings) == 1 else {})
        for bound in bindings:
            for name, text in bound.files.items():
                self.write_file(name, text)
        shutil.copy(binding.WRAPPER, self.stagedir)
        shutil.copy(tasks.LOADED, self.stagedir)
        shutil.copy(samples.STARTED, self.stagedir)
        self.prepare_launcher(bindings, launcher_options)
        check = tasks.module_check("./loaded.sh", partition, self.current_environ)
        self.prerun_cmds = [*(f"{command} || exit" for command in check), *self.prerun_cmds]
        others = [*self.env_vars]
        self.prepare()
        if message := declaration.overruled_variables(self, others):
            raise outcomes.Refused(message, code="check.wrong-declaration")
        self.limit_time(len(self.layouts))
        self.time_limit = max(self.time_limit, partition.extras.get("least_time", 0))
        self.sample_command(self.found.path, bindings)

    @property
    def only_shown(self) -> bool:
        """Whether the job script is wanted to look at, also if it could not run; or, in a plan, it
        could not run anyway."""
        plans = configuration.PLAN_FILE in os.environ
        return self.is_dry_run() and (not plans or bool(self.result.placeholders))

    def find_program(self) -> providers.Program:
        """Return the program, or in a dry run a placeholder.

        :raises NotProvided: if there is neither.
        """
        partition, environ = self.current_partition, self.current_environ
        try:
            return duet.program_of(self) or tasks.find_program(
                self.program, partition, environ, self.current_system.name
            )
        except providers.NotProvided as err:
            where = f"{self.current_system.name}:{environ.name}"
            provider = environ.extras.get("provider", "path")
            found = providers.placeholder(provider, self.program, where)
            launchers = (self.job.launcher.registered_name, found.launcher)
            known = environ.extras.get("launcher") or launchers != ("local", "local")
            # Only the program itself would show which MPI starts it.
            if not (self.is_dry_run() and known):
                raise
            self.result.placeholders[f"{providers.NOT_BUILT}/ENVIRONMENT/bin/PROGRAM"] = err
            return found

    def lay_out(self, partition, topology: Topology) -> tuple[placement.Layout, ...]:
        """Return the layouts that the job measures one after the other.

        :raises PlacementError: if the topology does not have the placement.
        """
        several = "off-node" in partition.features and not self.pinned_to
        nodes = self.nodes or (2 if several else 1)
        return placement.lay_out(
            self.placement, topology, nodes, self.tasks_per_node, self.one_process
        )

    def choose_launcher(self) -> str:
        """Set the job's launcher, and return the process manager whose options it takes."""
        extras = self.current_environ.extras
        launcher = extras.get("launcher")
        if launcher or self.job.launcher.registered_name == "local":
            self.job.launcher = getlauncher(launcher or self.found.launcher)()
        name = self.job.launcher.registered_name
        if name == self.found.launcher != "local":
            self.job.launcher.path = self.found.launcher_path
        # The name `mpiexec` does not show which MPI it is of; the environment does. That of Open
        # MPI does not show the version; the program does.
        own = self.found.process_manager if name in ("openmpi", "mpirun-openmpi") else ""
        return extras.get("process_manager") or own or name

    def bind_tasks(self, manager: str) -> list[binding.Binding]:
        """Return the binding of each layout by a process manager.

        :raises BindingError: if it cannot express one.
        """
        return [binding.bind(layout, manager, self.topology) for layout in self.layouts]

    def apply_variant(self) -> list[str]:
        """Set conditions and variables of partition, program and variant.

        :returns: the variant's launcher options, as the shell reads them.
        """
        extras = self.current_partition.extras
        variant = {}
        if self.active_variant != DEFAULT:
            variant = extras["variants"][self.active_variant]
            self.conditions = {"variant": self.active_variant, **self.conditions}
        if mode := tasks.gpu_mode_of(self.current_partition, self.layout):
            self.conditions = {"gpu_mode": mode, **self.conditions}
        self.conditions = {
            **extras.get("conditions", {}),
            **variant.get("conditions", {}),
            **self.conditions,
        }
        self.env_vars.update({**self.found.env_vars, **variant.get("env_vars", {})})
        return [*map(shlex.quote, variant.get("launcher_options", []))]

    @property
    def layout(self) -> placement.Layout:
        """The first layout; the others have as many tasks and nodes."""
        return self.layouts[0]

    @property
    def on_this_machine(self) -> bool:
        """Whether the job runs on this machine now, next to other processes."""
        partition = self.current_partition
        return (
            partition is not None and host_load.matters(self, partition) and not self.is_dry_run()
        )

    @property
    def shared(self) -> bool:
        """Whether other processes use the job's cores too, so that its figures are not compared."""
        if not self.on_this_machine:
            return False
        wanted = self.layout.num_tasks * (self.layout.num_cpus_per_task or 1)
        return host_load.shared(wanted, len(self.topology.cores))

    @property
    def slowdown(self) -> float:
        """How many times longer the job may take because of other processes."""
        return host_load.slowdown(len(self.topology.cores)) if self.on_this_machine else 1.0

    @property
    def last_level_cache(self) -> int:
        """Bytes of a last-level cache; skips the case if they are not known."""
        if not self.topology.last_level_cache:
            self.skip_case(
                "the size of the last-level cache is not known: add the caches to the processor's "
                "topology in the system file",
                "placement.cache-unknown",
            )
        return self.topology.last_level_cache

    def set_tasks(self) -> None:
        """Set the number of tasks and nodes, for the job that exists already too."""
        layout = self.layout
        cpus = tasks.cpus_per_task(self.current_partition, layout, self.topology)
        self.num_tasks = self.job.num_tasks = layout.num_tasks
        self.num_tasks_per_node = self.job.num_tasks_per_node = layout.num_tasks_per_node
        self.num_cpus_per_task = self.job.num_cpus_per_task = cpus
        if layout.vendor:
            self.num_gpus_per_node = len(self.topology.gpus)

    # -- the job script -------------------------------------------------------------------------

    def prepare_launcher(self, bindings: list[binding.Binding], options: list[str]) -> None:
        """Set the launcher's options, those of a variant first."""
        bound = samples.options(bindings)
        own_nodes = duet.launcher_options(self)
        if self.job.launcher.registered_name == "local":
            # ReFrame's local launcher ignores its options, but not a modifier before the program.
            self.job.launcher.modifier, *self.job.launcher.modifier_options = bound
        else:
            self.job.launcher.options = [*options, *bound, *own_nodes]

    def sample_command(self, path: str, bindings: list[binding.Binding]) -> None:
        """Write the loop over the samples around the launcher's command."""
        loop = samples.loop(
            self.layouts,
            bindings,
            self.num_warmups + self.num_samples,
            self.num_warmups,
            [*duet.waiting(self.duet_side), *self.before_sample, *self.watch[:1]],
            [*self.watch[1:], *self.after_sample, *duet.passing(self.duet_side)],
            self.output_per_task,
        )
        self.put_command("./task.sh", path, loop)

    @property
    def watch(self) -> list[str]:
        """The commands before and after a run that end it if it prints no value."""
        return samples.watch(self.start_seconds) if self.start_seconds else []

    def put_command(self, start: str, path: str, loop: samples.Loop) -> None:
        """Write the program's command into a loop.

        :arg start: the first word after the launcher's command.
        :arg path: of the program.
        """
        some = [
            f"$([ $sample {unless} 0 ] || echo {' '.join(map(shlex.quote, options))})"
            for unless, options in (("!=", self.first_sample_opts), ("=", self.later_sample_opts))
            if options
        ]
        # Before all commands of the launcher, also those that make a folder on each node.
        unset = f"unset {' '.join(binding.UNSET)}"
        self.prerun_cmds = [unset, *self.prerun_cmds, *loop.before]
        self.executable = start
        self.executable_opts = [
            loop.sample,
            *([network.WORD] if self.layout.num_nodes > 1 else []),
            *throttling.word(self.layout.vendor, self.num_warmups),
            *loop.words,
            shlex.quote(path),
            *some,
            *map(shlex.quote, self.executable_opts),
            *loop.redirections,
        ]
        self.postrun_cmds = [*loop.after, *self.postrun_cmds]

    def run_here(self, folder: Path, seconds: float) -> None:
        """Run the program once on this machine, as a single process, in the job's environment.

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
        """Write an input file into the stage folder."""
        (Path(self.stagedir) / name).write_text(text, encoding="utf-8")

    def storage(self, file_system: str) -> scratch.FileSystem:
        """Return a file system of the partition; skip the case if the partition has none."""
        extras = self.current_partition.extras
        try:
            return scratch.file_system(extras, file_system)
        except scratch.ScratchError as err:
            if not self.only_shown or err.code != "scratch.variable-unset":
                self.skip_case(str(err), err.code)
            file = paths.systems().find(f"{self.current_system.name}.yaml")
            unset = scratch.ScratchError(f"{file}: {err}", err.code)
            self.result.placeholders[f"{scratch.NOT_SET}/VARIABLE"] = unset
            return scratch.file_system(extras, file_system, scratch.WithUnset(os.environ))

    def make_scratch(
        self, needed: int, files: int = 1, direct_io: bool = False, file_system: str = "scratch"
    ) -> Path:
        """Make a folder for this test case alone, which is removed when the case has ended.

        :arg needed: bytes that the test case will write, in so many files; the case is skipped if
            there is less space.
        :arg direct_io: skips the case if the file system has no direct I/O, which of a node-local
            one the job finds out.
        :arg file_system: one of the partition's ``extras.file_systems``, or ``scratch``.
        """
        chosen = self.storage(file_system)
        folder = scratch.own_folder(chosen.folder, Path(self.stagedir).name)
        # A node-local folder exists on each node, and only the job's tasks can make or remove it.
        launch = f"{self.job.launcher.run_command(self.job)} ./task.sh - "
        commands = scratch.commands(folder, launch if chosen.node_local else "", direct_io)
        self.prerun_cmds = [*self.prerun_cmds, *commands]
        if not chosen.node_local and not self.only_shown:
            self.result.scratch = folder
            try:
                scratch.make(folder, needed, files, direct_io)
            except scratch.ScratchError as err:
                self.skip_case(str(err), err.code)
        # A measurement on another disk is not comparable, also if the name is the same.
        self.result.build["scratch"] = scratch.kind(folder.parent)
        if chosen.resource:
            self.extra_resources = {**self.extra_resources, chosen.resource: {}}
        self.conditions = {**chosen.conditions, **self.conditions}
        return folder

    @builtins.run_before("run")
    def note_start(self):
        """Keep the time of submission by two clocks, of which one may be set meanwhile."""
        self.submitted = time.time(), time.monotonic()

    @builtins.run_before("run")
    def choose_nodes(self):
        """Request other nodes each day, if the partition is set so, and nodes of several racks
        where the placement needs them."""
        if not (self.is_dry_run() or self.duet_side or self.pinned_to):
            nodes, racks = self.layout.num_nodes, self.layout.racks
            self.job.pin_nodes = rotation.of_job(
                self.current_partition, self.job, nodes, racks, self.display_name
            ) or self.job.pin_nodes  # fmt: skip

    @builtins.run_before("run", always_last=True)
    def set_up_other_side(self):
        """Set up side B of a duet, when this is side A."""
        if duet.current and self.duet_side == "a":
            duet.current.set_up(self)
