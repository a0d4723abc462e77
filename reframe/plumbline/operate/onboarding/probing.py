"""A job of one node that describes it, under each batch system."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from plumbline.core import files, paths
from plumbline.core.errors import Fault
from plumbline.core.process import last_line
from plumbline.operate.onboarding import node
from plumbline.parse import outputs

#: Command that describes the node that it runs on.
DESCRIBE = (".venv/bin/python", "-m", "plumbline.operate.onboarding.node")

#: Seconds that a job may wait and run.
PATIENCE = 600


def _slurm(access: list[str], partition: dict, output: str, python: list[str]) -> list[str]:
    # A task of srun(1) does not have all CPUs of the node.
    return [
        "sbatch", "--wait", "--quiet", *access, "--nodes=1", "--ntasks=1", "--time=5",
        f"--output={output}", f"--wrap={shlex.join(python)}",
    ]  # fmt: skip


def _pbspro(access: list[str], partition: dict, output: str, python: list[str]) -> list[str]:
    # qsub(1B), "-W block=true"; words without a hyphen belong to the chunk, as for ReFrame.
    options: list[str] = []
    chunk = ["select=1"]
    if cpus := (partition.get("processor") or {}).get("num_cpus"):
        chunk.append(f"ncpus={cpus}")
    for option in access:
        before = options[-1] if options else ""
        is_value = option.startswith("-") or (before.startswith("-") and len(before) == 2)
        (options if is_value else chunk).append(option)
    # The job starts in the home folder.
    program = str(Path(python[0]).absolute())
    return [
        "qsub", "-W", "block=true", *options, "-l", ":".join(chunk), "-l", "walltime=00:05:00",
        "-j", "oe", "-o", output, "--", program, *python[1:],
    ]  # fmt: skip


def _lsf(access: list[str], partition: dict, output: str, python: list[str]) -> list[str]:
    # bsub(1) appends a report to the output of -o. With CSM, jobs start on a launch node.
    on_node = ["jsrun", "-n", "1", "-c", "ALL_CPUS", "-g", "ALL_GPUS"]
    csm = partition.get("launcher") == "jsrun"
    run = shlex.join([*on_node, *python] if csm else python)
    nodes = ["-nnodes", "1"] if csm else ["-n", "1"]
    return ["bsub", "-K", *access, *nodes, "-W", "5", "-o", "/dev/null",
            f"{run} > {shlex.quote(output)}"]  # fmt: skip


def _flux(access: list[str], partition: dict, output: str, python: list[str]) -> list[str]:
    return ["flux", "run", *access, "--nodes=1", "--ntasks=1", "--time-limit=5m",
            f"--output={output}", *python]  # fmt: skip


#: ReFrame's name of a scheduler -> a function that returns the command of a job that ends with the
#: job.
_JOBS: dict[str, Callable[[list[str], dict, str, list[str]], list[str]]] = {
    "slurm": _slurm,
    "squeue": _slurm,
    "pbspro": _pbspro,
    "pbs": _pbspro,
    "lsf": _lsf,
    "flux-batch": _flux,
}


def command(partition: dict, output: str, python: tuple[str, ...] = DESCRIBE) -> list[str] | None:
    """Return the command that describes a node of a partition in a job; ``None`` if there is none
    for its scheduler.

    :arg output: file for the description.
    """
    job = _JOBS.get(partition["scheduler"])
    access = [word for option in partition.get("access", []) for word in shlex.split(option)
              if not option.startswith("#")]  # fmt: skip
    return job(access, partition, output, list(python)) if job else None


def describe(partition: dict, show: Callable[[str], None]) -> dict:
    """Return the description of a node of a partition, from a job.

    :arg show: called with a line that has the job's command.
    :raises Fault: if there is no such job, it fails, or does not end in ten minutes.
    """
    results = paths.results()  # The node can write there.
    with files.writing(results, "cannot be written ({}): set PLUMBLINE_RESULTS to another folder"):
        results.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix="init-", dir=results)
    with temporary as folder:
        file = Path(folder, "node.json")
        words = command(partition, str(file), (sys.executable, *DESCRIBE[1:]))
        if words is None:
            raise Fault(
                f"--probe: no job is known for scheduler {partition['scheduler']}: run "
                f"`{shlex.join(DESCRIBE)} > node.json` on a node, and give --node QUEUE=node.json "
                f"instead",
                code="scheduler.unsupported",
            )
        show(f"submitting: {shlex.join(words)}")
        _submit(words, file)
        return node.read(file)


def _submit(words: list[str], output: Path) -> None:
    """Submit a job and wait for its end.

    :arg output: the file with its output.
    :raises Fault: if it fails or does not end in time.
    """
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            check=False, errors="replace",
        )  # fmt: skip
    except OSError as err:
        raise Fault(
            f"{words[0]} cannot be run: {err.strerror}", code="scheduler.no-answer"
        ) from None
    except subprocess.TimeoutExpired:
        raise Fault(
            f"{words[0]} did not end within {PATIENCE} s; its job may still be queued: cancel it",
            code="scheduler.no-answer",
        ) from None
    if done.returncode:
        why = last_line(done.stderr) or f"exit code {done.returncode}"
        try:
            # The job itself says there what it lacks.
            printed = last_line(outputs.read(output, errors="replace"))
        except OSError:
            printed = ""
        raise Fault(
            ": ".join(filter(None, [f"{words[0]} failed", why, printed])),
            code="scheduler.no-answer",
        )
