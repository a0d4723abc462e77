"""A sweep's jobs, for ReFrame: one test case for each node, which runs the whole set on it.

Beside ``checks/`` since it measures nothing itself. Which nodes there are stands in the sweep's
folder, which :data:`plumbline.site.configuration.SWEEP` names.
"""

import os
import shlex
import sys
from pathlib import Path

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher

from plumbline.core import paths
from plumbline.operate import sweep
from plumbline.site import configuration

_SWEEP = sweep.Sweep.read(Path(os.environ[configuration.SWEEP]))


@rfm.simple_test
class node_sweep(rfm.RunOnlyRegressionTest):
    """The job of one node: a session of its own, with the local scheduler, on the node itself."""

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
        """What the job runs. Its environment is told in full: a site may export none of ours."""
        self.job.pin_nodes = [self.node]
        # The session starts steps of its own.
        self.job.launcher = getlauncher("local")()
        here = {
            "PLUMBLINE_SYSTEMS": paths.systems(),
            "PLUMBLINE_REFERENCE": paths.reference(),
            "PLUMBLINE_RESULTS": paths.results(),
            "PLUMBLINE_SPACK_ENV": paths.spack_env(),
            "PLUMBLINE_TOOLS": paths.tools(),
            configuration.ON_NODE: f"{_SWEEP.system}:{_SWEEP.partition}",
        }
        self.env_vars = {name: shlex.quote(str(value)) for name, value in here.items()}
        claim = shlex.quote(str(_SWEEP.claim(self.node)))
        self.prerun_cmds = [
            # Those of this job are not those of the steps that it starts.
            f"unset {configuration.SWEEP} SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE",
            f'[ "${{SLURMD_NODENAME:-}}" = {shlex.quote(self.node)} ] || '
            f'{{ echo "{sweep.ELSEWHERE}: ${{SLURMD_NODENAME:-?}}"; exit 1; }}',
            # The first job of a node has it: another one, left by a sweep that was killed, ends.
            f'mkdir -- {claim} || {{ echo "{sweep.TAKEN}"; exit 0; }}',
            f'echo "${{SLURM_JOB_ID:-}}" > {claim}/job',
        ]
        words = [
            str(Path(sys.executable).with_name("plumbline")), "run", "--system", _SWEEP.system,
            *_SWEEP.arguments, "--session-extras", f"sweep={_SWEEP.name},node={self.node}",
        ]  # fmt: skip
        self.executable = shlex.quote(words[0])
        self.executable_opts = [shlex.quote(word) for word in words[1:]]
        self.postrun_cmds = [f"echo $? > {claim}/code.part && mv {claim}/code.part {claim}/code"]

    @builtins.sanity_function
    def ended(self):
        """The node's session came to its end; its verdicts are its own."""
        state = _SWEEP.state(self.node)
        return sn.assert_true(state.measured, f"node {self.node}: {state.told}")
