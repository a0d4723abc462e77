"""What a stand-in does when it is called: by the name it is called by."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

from . import batch, launch, launch_mpi, login, smi
from . import run as runs
from .job import Task, current
from .machine import Machine, here
from .options import Refused

#: Commands of each batch system.
COMMANDS = {
    "slurm": {"sbatch", "squeue", "sacct", "scontrol", "scancel", "sinfo"},
    "lsf": {"bsub", "bjobs", "bkill", "bqueues", "lshosts", "lsid"},
    "pbspro": {"qsub", "qstat", "qdel", "pbsnodes"},
    "torque": {"qsub", "qstat", "qdel", "pbsnodes"},
    "flux": {"flux"},
    "none": set(),
}

BATCH = frozenset(name for names in COMMANDS.values() for name in names)


def flavour_of(machine: Machine) -> str:
    """Which MPI's mpirun and mpiexec are on PATH: the machine's own, or that of a loaded
    module."""
    flavour = machine.facts.get("mpi", "")
    by_module = machine.facts.get("by_module", {})
    for module in os.environ.get("LOADEDMODULES", "").split(":"):
        flavour = by_module.get(module.partition("/")[0], flavour)
    return flavour


def launcher(name: str, machine: Machine) -> Callable | None:
    """The function of a launcher, where this machine has it."""
    intel = functools.partial(launch_mpi.hydra, intel=True)
    own = {"srun": launch.srun, "jsrun": launch.jsrun, "aprun": launch_mpi.aprun,
           "flux run": launch_mpi.flux_run}  # fmt: skip
    by_mpi = {
        "mpiexec_mpt": {"mpt": launch_mpi.mpt},
        "mpirun": {"openmpi": launch_mpi.openmpi, "intelmpi": intel},
        "mpiexec": {
            "openmpi": launch_mpi.openmpi,
            "intelmpi": intel,
            "mvapich": launch_mpi.hydra,
            "pals": launch_mpi.pals,
        },
    }
    if name in own:
        function = own[name] if name in machine.facts.get("launchers", ()) else None
    elif name in by_mpi:
        function = by_mpi[name].get(flavour_of(machine))
    else:
        return None
    if function is None:
        raise Refused(f"bash: {name}: command not found", 127)
    return function


#: Commands of a node, or of any machine, which are neither a launcher nor a program.
ON_LOGIN_OR_NODE = {
    "modulecmd": login.modulecmd,
    "nvidia-smi": smi.nvidia_smi,
    "rocm-smi": smi.rocm_smi,
    "rocm_agent_enumerator": smi.rocm_agent_enumerator,
}


def main(name: str, words: list[str]) -> int:
    """Runs a stand-in; its exit code."""
    try:
        machine = here()
        if name in ON_LOGIN_OR_NODE:
            return ON_LOGIN_OR_NODE[name](words, machine)
        if name == "srun" and words == ["--mpi=list"]:
            return login.mpi_types() or 0
        if name == "flux" and words[:1] == ["run"]:
            name, words = "flux run", words[1:]
        if name in BATCH:
            if name not in COMMANDS[machine.facts["batch"]]:
                raise Refused(f"bash: {name}: command not found", 127)
            return batch.main(name, words, machine)
        job = current(machine)
        if function := launcher(name, machine):
            step = function(words, job)
            step.moves = flavour_of(machine) == "mvapich"
            return runs.execute(machine, job, step)
        alone = Task(0, job.nodes[0], 0, job.cpus, job.gpus)
        return runs.start(runs.Run(machine, job, [alone], dict(os.environ)), [name, *words])
    except Refused as refused:
        print(refused, file=sys.stderr, flush=True)
        return refused.code
    except BrokenPipeError:
        return 141
