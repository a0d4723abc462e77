"""What is still open of a system, from its draft to its first baseline; `plumbline lint` tells it.

An open end is no fault: the file is right as far as it goes, and what it lacks is skipped with a
reason, or not asserted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from plumbline.check import record
from plumbline.core import paths
from plumbline.core.text import counted
from plumbline.software import providers

#: Command that prints what a node is like inside.
DESCRIBE = (".venv/bin/python", "-m", "plumbline.operate.onboarding.node")

#: Sessions that a baseline takes at least.
SESSIONS = 3

_BENCHMARKS = {feature for found in providers.FEATURES.values() for feature in found[:1]}


def has_checks(content: dict) -> bool:
    """Whether a partition of a system has a placement, and an environment with a benchmark."""
    features = {e["name"]: {*e.get("features", [])} for e in content["environments"]}
    return any(
        partition.get("extras", {}).get("placements")
        and any(features.get(name, set()) & _BENCHMARKS for name in partition.get("environs", []))
        for partition in content["systems"][0]["partitions"]
    )


def probe_command(partition: dict, output: str, python: tuple[str, ...] = DESCRIBE) -> list[str]:
    """The command that has a node of a partition print what it is like inside.

    A batch script has all of the node's CPUs; a task of srun(1) has those that it asks for.

    :arg output: file that it goes to.
    """
    if partition["scheduler"] not in ("slurm", "squeue"):
        return [*python]
    options = [word for option in partition.get("access", []) for word in shlex.split(option)
               if not option.startswith("#")]  # fmt: skip
    return [
        "sbatch", "--wait", "--quiet", *options, "--nodes=1", "--ntasks=1", "--time=5",
        f"--output={output}", f"--wrap={shlex.join(python)}",
    ]  # fmt: skip


def opens(name: str, content: dict) -> Iterator[str]:
    """What a system's file does not say yet, and how it is found out, a line each."""
    for partition in content["systems"][0]["partitions"]:
        where = f"partition {partition['name']}"
        extras = partition.get("extras", {})
        if extras.get("detect"):
            continue
        if not (partition.get("processor") or {}).get("topology"):
            node = f"{partition['name']}.json"
            command = shlex.join(probe_command(partition, node))
            if not command.startswith("sbatch"):
                command = f"on a node of it `{command} > {node}`"
            else:
                command = f"`{command}`"
            # The same command tells of the GPUs.
            yield (
                f"{where}: no processor.topology, so that all of its checks are skipped: "
                f"`plumbline init {name} --probe -o -` submits a job that finds it out, or "
                f"{command}, then `plumbline init {name} --node "
                f"{partition['name']}={node} -o -`"
            )
        else:
            yield from (f"{where}: {line}" for line in _of_gpus(partition))
        if "memory" not in extras:
            yield f"{where}: extras.memory: bytes of a node; `free -b` on it says it"
        if not ("scratch" in extras or extras.get("file_systems")):
            yield (
                f"{where}: neither extras.scratch nor extras.file_systems: checks of I/O are "
                f"skipped until a folder to write in is named"
            )
    for environment in content["environments"]:
        features = {*environment.get("features", [])}
        if not features & _BENCHMARKS and not environment.get("extras", {}).get("detect"):
            yield (
                f"environment {environment['name']}: no benchmark among its features, so that it "
                f"has no check: put its programs on PATH (or build them: docs/spack.md) and "
                f"name them: {', '.join(sorted(_BENCHMARKS))}"
            )


def _of_gpus(partition: dict) -> Iterator[str]:
    gpus = [device for device in partition.get("devices", []) if device.get("type") == "gpu"]
    extras = partition.get("extras", {})
    if gpus and not all(device.get("arch") for device in gpus):
        yield (
            "devices: no arch (sm_80, gfx90a), so that no GPU is bound: `nvidia-smi "
            "--query-gpu=compute_cap --format=csv` or `rocminfo` on a node says it"
        )
    if gpus and "gpu_affinity" not in extras:
        yield (
            "extras.gpu_affinity: which CPUs are near to which GPU is not known: `nvidia-smi topo "
            "-m` or `rocm-smi --showtoponuma` on a node says it"
        )
    count = sum(device.get("num_devices", 1) for device in gpus)
    if count > 1 and not extras.get("pair_classes"):
        yield (
            "extras.pair_classes: pairs of GPUs are not measured: `nvidia-smi topo -m` or "
            "`rocm-smi --showtopo` on a node tells their classes"
        )


def following(name: str, content: dict) -> str | None:
    """What comes next: the first run, the next ones, the first baseline; ``None`` after it."""
    if not has_checks(content):
        return "name a benchmark in an environment's features, then `plumbline lint` again"
    if (paths.reference() / "site" / f"{name}.csv").exists():
        return None
    sessions = sum(_is_of(folder, name) for folder in record.sessions(paths.results()))
    if not sessions:
        return f"the first run: `plumbline run --system {name} --mode=smoke`"
    if sessions < SESSIONS:
        more = SESSIONS - sessions
        return (
            f"{counted(sessions, 'session')} of {name} so far: {more} more at least, and "
            f"`plumbline baseline {name}` makes its first baseline, or says how many more it wants"
        )
    return (
        f"{sessions} sessions of {name}: `plumbline baseline {name}` makes its first baseline, or "
        f"says how many more it wants; after it `plumbline lint --system {name} --accept`"
    )


def _is_of(folder: Path, name: str) -> bool:
    try:
        plan = record.plan(folder)
    except (OSError, record.Damaged):
        return False
    # A sweep is one session for each node.
    whole = plan["system"] == name and "sweep" not in plan["extras"]
    return whole and (folder / "records.jsonl").exists()
