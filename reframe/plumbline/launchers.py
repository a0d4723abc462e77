"""Launchers that ReFrame lacks: registered when ReFrame's configuration loads."""

from __future__ import annotations

from reframe.core.backends import register_launcher
from reframe.core.launchers import JobLauncher


class _OfOneMpi(JobLauncher):
    """A launcher by its absolute path: of the ``mpiexec`` on PATH, which MPI's comes first is
    chance, and the wrong one starts N single ranks.

    :ivar path: the launcher's executable.
    """

    path = ""
    tasks_option = "-n"

    def command(self, job):
        return [self.path, self.tasks_option, str(job.num_tasks)]


@register_launcher("hydra")
class Hydra(_OfOneMpi):
    """MPICH's process manager."""

    path = "mpiexec.hydra"


@register_launcher("openmpi")
class OpenMpi(_OfOneMpi):
    """Open MPI's ``mpirun``."""

    path = "mpirun"
    tasks_option = "-np"


@register_launcher("jsrun")
class Jsrun(JobLauncher):
    """IBM's Job Step Manager on LSF: jsrun(1), also "Job Launcher (jsrun)" in the OLCF's Summit
    User Guide.

    One resource set holds one task and its cores (``-c`` counts cores, not hardware threads). A
    binding that wants other sets replaces them.

    :ivar gpus_per_task: GPUs in each resource set.
    :ivar resource_sets: the options from ``-n`` to ``-r``, where a binding sets them.
    """

    def __init__(self):
        super().__init__()
        self.gpus_per_task = 0
        self.resource_sets: list[str] | None = None

    def command(self, job):
        if self.resource_sets is not None:
            return ["jsrun", *self.resource_sets]
        command = ["jsrun", "-n", str(job.num_tasks), "-a", "1"]
        command += ["-c", str(job.num_cpus_per_task or 1), "-g", str(self.gpus_per_task)]
        if job.num_tasks_per_node:
            command += ["-r", str(job.num_tasks_per_node)]
        return command


@register_launcher("flux-run")
class FluxRun(JobLauncher):
    """Flux's ``flux run``: flux-run(1) of flux-core, "JOB PARAMETERS".

    :ivar gpus_per_task: GPUs of each task.
    """

    def __init__(self):
        super().__init__()
        self.gpus_per_task = 0

    def command(self, job):
        command = ["flux", "run"]
        if job.num_tasks_per_node:
            command += ["-N", str(-(-job.num_tasks // job.num_tasks_per_node))]
        command += ["-n", str(job.num_tasks)]
        if job.num_cpus_per_task:
            command += ["-c", str(job.num_cpus_per_task)]
        if self.gpus_per_task:
            command += ["-g", str(self.gpus_per_task)]
        return command
