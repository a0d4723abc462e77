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
