"""The jobs of a sweep as a ReFrame check: one test case for each node.

It is not in ``checks/`` since it measures nothing itself. The environment variable
:data:`plumbline.site.configuration.SWEEP` holds the folder of the sweep.
"""

import os
import shlex
from pathlib import Path

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher

from plumbline.check.job_output import last_line, stderr_of
from plumbline.core import paths, process
from plumbline.operate import sweep
from plumbline.session import session
from plumbline.site import configuration

_SWEEP = sweep.Sweep.read(Path(os.environ[configuration.SWEEP]))


@rfm.simple_test
class node_sweep(rfm.RunOnlyRegressionTest):
    """A session on one node, with the local scheduler."""

    descr = "One node's session of a sweep"
    node = builtins.parameter(_SWEEP.now)
    valid_systems = [f"{_SWEEP.system}:{_SWEEP.partition}"]
    valid_prog_environs = [configuration.SWEEP_ENVIRONMENT]
    tags = {"screen"}
    num_tasks = 1
    num_tasks_per_node = 1
    exclusive_access = True
    time_limit = f"{_SWEEP.seconds}s"

    @builtins.run_after("setup")
    def pin(self):
        """Set up the job, with all variables: a site may export none to its jobs."""
        self.job.pin_nodes = [self.node]
        # The session starts its own job steps.
        self.job.launcher = getlauncher("local")()
        variables = {
            "PLUMBLINE_SITE": paths.site(),
            "PLUMBLINE_RESULTS": paths.results(),
            "PLUMBLINE_TOOLS": paths.tools(),
            configuration.ON_NODE: f"{_SWEEP.system}:{_SWEEP.partition}",
        }
        self.env_vars = {name: shlex.quote(str(value)) for name, value in variables.items()}
        claim = shlex.quote(str(_SWEEP.claim(self.node)))
        self.prerun_cmds = [
            # The session's job steps have other numbers of tasks than this job, and the budget is
            # that of all nodes.
            f"unset {configuration.SWEEP} {session.BUDGET}",
            "unset SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE",
            # As many as mpirun of Open MPI may start: its ras/slurm module counts no CPUs.
            'export SLURM_TASKS_PER_NODE="${SLURM_CPUS_ON_NODE:-1}"',
            f'[ "${{SLURMD_NODENAME:-}}" = {shlex.quote(self.node)} ] || '
            f'{{ echo "{sweep.WRONG_NODE}: ${{SLURMD_NODENAME:-?}}"; exit 1; }}',
            # Another job may be left by a sweep that was killed: the first one measures the node.
            # Of any other fault, such as a full file system, mkdir has printed what it is.
            f'mkdir -- {claim} || {{ [ -d {claim} ] || exit 1; echo "{sweep.CLAIMED}"; exit 0; }}',
            f'echo "${{SLURM_JOB_ID:-}}" > {claim}/job',
        ]
        command = [
            process.command("plumbline"), "run", "--system", _SWEEP.system,
            *_SWEEP.arguments, "--session-extras", f"sweep={_SWEEP.name},node={self.node}",
        ]  # fmt: skip
        self.executable = shlex.quote(command[0])
        self.executable_opts = [*map(shlex.quote, command[1:])]
        self.postrun_cmds = [f"echo $? > {claim}/code.part && mv {claim}/code.part {claim}/code"]

    @builtins.sanity_function
    def ended(self):
        """The node's session has ended, whatever its verdicts are."""
        state = _SWEEP.state(self.node)
        message = f"node {self.node}: {state.message}"
        if state.kind == "not reached":
            message += last_line(stderr_of(Path(self.stagedir, self.job.stderr)))
        # Braces in the message would be taken for placeholders.
        return sn.assert_true(state.measured, message.translate({ord(c): 2 * c for c in "{}"}))
