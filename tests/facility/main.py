"""What a stand-in does when it is called: by the name it is called by.

Some thousand are started in a run of the tests, most for a moment: modules of Python that take long
to load are imported where they are needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from . import login, smi
from .job import current
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
    from . import launch, launch_mpi

    flavour = flavour_of(machine)

    def intel(words, job):
        return launch_mpi.hydra(words, job, intel=True)

    own = set(machine.facts["launchers"])
    table = {
        "srun": launch.srun if "srun" in own else None,
        "jsrun": launch.jsrun if "jsrun" in own else None,
        "aprun": launch_mpi.aprun if "aprun" in own else None,
        "mpiexec_mpt": launch_mpi.mpt if flavour == "mpt" else None,
        "mpirun": {"openmpi": launch_mpi.openmpi, "intelmpi": intel},
        "mpiexec": {
            "openmpi": launch_mpi.openmpi,
            "intelmpi": intel,
            "mpich": launch_mpi.hydra,
            "mvapich": launch_mpi.hydra,
            "pals": launch_mpi.pals,
        },
        "mpiexec.hydra": {
            "intelmpi": intel,
            "mpich": launch_mpi.hydra,
            "mvapich": launch_mpi.hydra,
        },
    }
    if name not in table:
        return None
    found = table[name]
    found = found.get(flavour) if isinstance(found, dict) else found
    if found is None:
        raise Refused(f"bash: {name}: command not found", 127)
    return found


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
        if name in BATCH and not (name == "flux" and words[:1] == ["run"]):
            if name not in COMMANDS[machine.facts["batch"]]:
                raise Refused(f"bash: {name}: command not found", 127)
            from . import batch

            return batch.main(name, words, machine)
        from . import run as runs

        job = current(machine)
        if name == "flux":
            if machine.facts["batch"] != "flux":
                raise Refused("bash: flux: command not found", 127)
            from .launch_mpi import flux_run

            return _launched(flux_run, words[1:], machine, job)
        function = launcher(name, machine)
        if function:
            return _launched(function, words, machine, job)
        from .job import Task

        alone = Task(0, job.nodes[0], 0, job.cpus, job.gpus)
        return runs.start(runs.Run(machine, job, [alone], dict(os.environ)), [name, *words])
    except Refused as refused:
        print(refused, file=sys.stderr, flush=True)
        return refused.code
    except BrokenPipeError:
        return 141


def _launched(function: Callable, words: list[str], machine: Machine, job) -> int:
    from . import run as runs

    step = function(words, job)
    step.moves = flavour_of(machine) == "mvapich"
    return runs.execute(machine, job, step)
