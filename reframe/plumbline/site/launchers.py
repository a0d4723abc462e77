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


@register_launcher("mpt")
class Mpt(_OfOneMpi):
    """``mpiexec_mpt`` of HPE's MPT, which takes the hosts of a PBS job: mpiexec_mpt(1)."""

    path = "mpiexec_mpt"
    tasks_option = "-np"


@register_launcher("jsrun")
class Jsrun(JobLauncher):
    """IBM's Job Step Manager on LSF: jsrun(1), also "Job Launcher (jsrun)" in the OLCF's Summit
    User Guide.

    Without options of its own, one resource set holds one task and its cores (``-c`` counts
    cores, not hardware threads); options say all there is to say, as a binding's do.
    """

    def command(self, job):
        if self.options:
            return ["jsrun"]
        command = ["jsrun", "-n", str(job.num_tasks), "-a", "1"]
        command += ["-c", str(job.num_cpus_per_task or 1), "-b", "rs"]
        if job.num_tasks_per_node:
            command += ["-r", str(job.num_tasks_per_node)]
        return command


@register_launcher("flux-run")
class FluxRun(JobLauncher):
    """Flux's ``flux run``: flux-run(1) of flux-core, "JOB PARAMETERS".

    Without options of its own, the job's tasks and cores; options say all there is to say, as a
    binding's do.
    """

    def command(self, job):
        command = ["flux", "run"]
        if self.options:
            return command
        if job.num_tasks_per_node:
            command += ["-N", str(-(-job.num_tasks // job.num_tasks_per_node))]
        command += ["-n", str(job.num_tasks)]
        if job.num_cpus_per_task:
            command += ["-c", str(job.num_cpus_per_task)]
        return command
