"""Nodes and tasks of a test case: whether a partition can run it, and what is requested."""

from __future__ import annotations

import functools
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

import reframe.utility.osext as osext
from reframe.core.runtime import emit_loadenv_commands, runtime

from plumbline.check import rotation
from plumbline.check.job_output import last_line
from plumbline.core.process import SESSION, Shell
from plumbline.placement import binding
from plumbline.placement.placement import Layout
from plumbline.placement.topology import INTEL, MIG, PlacementError, Topology
from plumbline.software import providers

#: Fails a job whose modules are not loaded.
LOADED = Path(__file__).with_name("loaded.sh")

#: Exit code of a shell that could not load an environment: that of ``loaded.sh``.
_NOT_LOADED = 64


class NotLoaded(providers.NotProvided):
    """The module system does not load the modules of an environment."""


def topology_of(partition) -> Topology:
    """Return the topology of a ReFrame partition, within the CPUs that may be used.

    :raises PlacementError: if it is not known.
    """
    return Topology.of_partition(
        partition.processor.info,
        [device.info for device in partition.devices],
        partition.extras,
    )


def check_nodes(partition, layout: Layout, program: str) -> None:
    """Check that a partition has the nodes for a layout.

    :raises PlacementError: if it has not.
    """
    if layout.num_nodes > 1 and "off-node" not in partition.features:
        raise PlacementError(
            f"{program} needs {layout.num_nodes} nodes, and partition {partition.fullname} has "
            f"one (no off-node in its extras.placements): run it on a partition with more",
            code="placement.too-few-nodes",
        )
    if layout.placement == "gpus-off-node" and layout.num_nodes < 2:
        raise PlacementError(
            f"{program} is to run between nodes, and the check's nodes are {layout.num_nodes}: set "
            f"two or more (-S nodes=2)",
            code="placement.too-few-nodes",
        )
    if layout.racks > 1 and not rotation.racks_known(partition):
        raise PlacementError(
            "the racks of the nodes are unknown: set the partition's extras.rack_pattern (Slurm "
            "has no topology of several leaf switches: scontrol show topology)",
            code="placement.racks-unknown",
        )


def check_gpus(partition, layout: Layout) -> None:
    """Check that a partition's GPUs are whole, or parts that a layout can use, and supported.

    :raises PlacementError: if they are not.
    """
    if layout.tasks[0].gpus and any(gpu.info.get("arch") == INTEL for gpu in partition.devices):
        raise PlacementError(
            f"the GPUs of {partition.fullname} are Intel's, which Plumbline does not support",
            code="placement.gpu-not-supported",
        )
    if MIG in gpu_mode_of(partition, layout):
        raise PlacementError(
            f"the GPUs of {partition.fullname} are divided into instances (MIG), of which a "
            f"process sees only one: measure them with MIG off (`nvidia-smi -mig 0`, as root)",
            code="placement.mig",
        )


def gpu_mode_of(partition, layout: Layout) -> str:
    """Return how the GPUs that a layout uses are divided; empty if they are whole, or none."""
    return partition.extras.get("gpu_mode", "") if layout.tasks[0].gpus else ""


def check_stage_folder(partition, folder: str) -> None:
    """Check that the partition's nodes can write to the stage folder.

    :raises PlacementError: if they cannot.
    """
    stage = Path(folder).resolve()
    for read_only in partition.extras.get("read_only_on_nodes", []):
        if stage.is_relative_to(read_only):
            raise PlacementError(
                f"the results folder is {stage}, and the compute nodes of {partition.fullname} "
                f"cannot write to {read_only}: set PLUMBLINE_RESULTS to a folder that they can "
                f"write",
                code="scratch.read-only-on-nodes",
            )


def check_memory_policy(
    bindings: Iterable[binding.Binding], topology: Topology, one_process: bool
) -> None:
    """Check that this machine can bind memory where a binding needs that.

    :arg one_process: whether the program goes through the NUMA domains itself, as numactl does.
    :raises BindingError: if it cannot.
    """
    numactl = shutil.which("numactl")
    needed = any("numactl" in (*bound.options, *bound.task) for bound in bindings)
    if needed and not numactl:
        raise binding.BindingError(
            "numactl is not on PATH: install it (on Debian: apt-get install numactl)",
            code="binding.numactl-missing",
        )
    if numactl and (needed or one_process):
        domain = topology.os_number(min(topology.by_numa()))
        done = osext.run_command([numactl, f"--membind={domain}", "true"])
        if done.returncode:
            raise binding.BindingError(
                f"memory cannot be bound to NUMA domain {domain}{last_line(done.stderr)}. "
                f"Containers often forbid it: start this one with --cap-add=SYS_NICE, or measure "
                f"outside it",
                code="binding.memory-policy-refused",
            )


def cpus_per_task(partition, layout: Layout, topology: Topology) -> int | None:
    """Return the CPUs per task that the partition's scheduler is asked for; ``None`` for none."""
    # Within a job that runs a session on its node, the job's scheduler starts the steps.
    scheduler = partition.extras.get("x_within") or partition.scheduler.registered_name
    if scheduler in ("slurm", "squeue", "lsf"):
        # srun(1): --cpus-per-task implies --exact, and a CPU beyond the step's own is refused.
        # LSF: ReFrame asks for affinity, which a job of whole nodes (-nnodes) may not.
        return None
    if scheduler in ("pbs", "pbspro"):
        # PBS keeps a job to the CPUs that it asks for: all of them.
        return len(topology.cores) // layout.num_tasks_per_node
    return layout.num_cpus_per_task


# -- the program ---------------------------------------------------------------------------------


def find_program(program: str, partition, environ, system: str) -> providers.Program:
    """Return the program that the environment's provider has.

    :raises NotProvided: if it has none.
    :raises NotLoaded: if the modules of partition or environment are not loaded.
    """
    return providers.find(
        environ.extras.get("provider", "path"),
        program,
        functools.partial(shell_of, partition, environ),
        f"{system}:{environ.name}",
        configured_manager(partition, environ),
    )


def configured_manager(partition, environ) -> str:
    """Return the launcher or process manager of the system file; ``local`` if it names none."""
    extras = environ.extras
    named = extras.get("process_manager") or extras.get("launcher")
    return named or partition.launcher_type.registered_name


def module_check(script: str, partition, environ) -> list[str]:
    """Return the command that fails if modules of partition or environment are not loaded.

    It is empty if there are no modules.

    :arg script: path of ``loaded.sh``.
    """
    modules = [*partition.local_env.modules_detailed, *environ.modules_detailed]
    names = [module["name"] for module in modules if not module["collection"]]
    if not names or runtime().modules_system.name not in ("envmod", "tmod4", "lmod"):
        return []
    where = f"environment {environ.name} of {partition.fullname}"
    return [shlex.join([script, where, *names])]


def shell_of(partition, environ) -> Shell:
    """Return a shell with the modules and variables of partition and environment.

    :raises NotLoaded: if the modules are not loaded.
    """
    commands = emit_loadenv_commands(partition.local_env, environ)
    commands += module_check(str(LOADED), partition, environ)
    return _loaded(" &&\n".join(commands)) if commands else SESSION


@functools.cache
def _loaded(load: str) -> Shell:
    # As the job script does it: modules may be a function that only bash has.
    script = f"{{ {load}\n}} >&2 || exit {_NOT_LOADED}\nexec /usr/bin/env -0"
    done = osext.run_command(["bash", "-c", script], errors="surrogateescape")
    if done.returncode == _NOT_LOADED:
        output = " ".join(done.stderr.split())
        raise NotLoaded(
            f"the modules of the partition or environment could not be loaded: "
            f"{output or 'the module system printed nothing'}",
            code="build.modules-not-loaded",
        )
    variables = (entry.partition("=") for entry in done.stdout.split("\0") if entry)
    return Shell({name: value for name, _, value in variables})
