"""Lists what a system still lacks on the way to its first baseline, for `plumbline lint`.

None of it is a fault: checks that need it are skipped with a reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from plumbline import parse
from plumbline.check import record, session_files
from plumbline.core import paths
from plumbline.core.text import pluralize
from plumbline.operate.onboarding import probing
from plumbline.placement.topology import INTEL, MIG
from plumbline.session import plan
from plumbline.site import inventory
from plumbline.site.system import MODELS
from plumbline.software import providers

#: Minimum number of sessions for a baseline.
SESSIONS = 3


def has_checks(content: dict) -> bool:
    """Return whether any partition has a placement and an environment with a benchmark."""
    known = {environment["name"]: environment for environment in content.get("environments", [])}
    return any(
        partition.get("extras", {}).get("placements")
        and any(_has_benchmark(content, known.get(n, {})) for n in partition.get("environs", []))
        for partition in content["systems"][0]["partitions"]
    )


def _has_benchmark(content: dict, environment: dict) -> bool:
    extras = environment.get("extras", {})
    if {*environment.get("features", [])} - MODELS:
        return True
    if not extras.get("detect"):
        return False
    name = f"{content['systems'][0]['name']}:{environment['name']}"
    return bool(providers.installed(extras["provider"], name, plan.programs()))


def open_items(name: str, content: dict) -> Iterator[str]:
    """Yield what a system's file lacks, and how to find it out."""
    for partition in content["systems"][0]["partitions"]:
        where = f"partition {partition['name']}"
        extras = partition.get("extras", {})
        if extras.get("detect"):
            continue
        if not _is_described(partition):
            # Its description has the GPUs, too.
            yield f"{where}: no processor.topology, so all its checks are skipped: " + describing(
                name, partition
            )
        else:
            yield from (f"{where}: {line}" for line in _of_gpus(partition))
        if "memory" not in extras:
            yield f"{where}: no extras.memory: `free -b` on a node prints its bytes"
        if not ("scratch" in extras or extras.get("file_systems")):
            yield (
                f"{where}: neither extras.scratch nor extras.file_systems, so I/O checks are "
                f"skipped: add a folder to write in"
            )
    for environment in content.get("environments", []):
        features = {*environment.get("features", [])}
        if not features - MODELS and not environment.get("extras", {}).get("detect"):
            yield (
                f"environment {environment['name']}: no benchmark among its features, so no check "
                f"runs in it: put programs on PATH (or build them: docs/spack.md) and add their "
                f"features; available: {', '.join(parse.BENCHMARKS)}, and those of your own checks"
            )


def _is_described(partition: dict) -> bool:
    detected = partition.get("extras", {}).get("detect")
    return bool(detected or (partition.get("processor") or {}).get("topology"))


def describing(name: str, partition: dict) -> str:
    """Return how to get the description of a node."""
    if partition["scheduler"] == "local":
        # Without queues, a draft describes the host that it is made on.
        return f"`plumbline init {name} -o -` on a node detects it"
    file = f"{partition['name']}.json"
    command = probing.command(partition, file)
    run = f"on a node `{shlex.join(probing.DESCRIBE)} > {file}`"
    job = ""
    if command:
        job = f"`plumbline init {name} --probe -o -` submits a job that detects it; or "
        run = f"`{shlex.join(command)}`"
    return f"{job}run {run}, then `plumbline init {name} --node {partition['name']}={file} -o -`"


def _of_gpus(partition: dict) -> Iterator[str]:
    """Yield what a partition lacks about its GPUs."""
    gpus = [device for device in partition.get("devices", []) if device.get("type") == "gpu"]
    extras = partition.get("extras", {})
    if any(device.get("arch") == INTEL for device in gpus):
        yield "devices: Intel's GPUs are not measured [placement.gpu-not-supported]"
        return
    if MIG in extras.get("gpu_mode", ""):
        yield (
            "extras.gpu_mode: the GPUs are divided into instances (MIG), so none is measured: "
            "`nvidia-smi -mig 0` as root makes them whole; then remove the entry"
        )
        return
    if gpus and not all(device.get("arch") for device in gpus):
        yield (
            "devices: no arch (sm_80, gfx90a), so no GPU is bound: `nvidia-smi "
            "--query-gpu=compute_cap --format=csv` or `rocminfo` on a node prints it"
        )
    if gpus and "gpu_affinity" not in extras:
        yield (
            "no extras.gpu_affinity, the CPUs near each GPU: `nvidia-smi topo -m` or "
            "`rocm-smi --showtoponuma` on a node prints them"
        )
    count = sum(device.get("num_devices", 1) for device in gpus)
    if count > 1 and not extras.get("pair_classes"):
        yield (
            "no extras.pair_classes, so pairs of GPUs are not measured: `nvidia-smi topo -m` or "
            "`rocm-smi --showtopo` on a node prints their links"
        )


def next_step(name: str, content: dict, folders: Sequence[str] = ()) -> str | None:
    """Return the next step of a system, ``None`` once it has a baseline.

    :arg folders: of checks that are loaded with ``-c``.
    """
    if not has_checks(content):
        return "add a benchmark to an environment's features, then run `plumbline lint` again"
    if (paths.reference().own / f"{name}.csv").exists():
        return None
    # Checks of the site's own may need no topology.
    if not folders and not any(map(_is_described, content["systems"][0]["partitions"])):
        return "the topology of a node, as above: until then, all that needs a placement is skipped"
    sessions = sum(_is_of(folder, name) for folder in session_files.sessions(paths.results()))
    if not sessions:
        # With -c, a session has only the checks that it names.
        named = plan.check_options([*paths.checks(), *folders]) if folders else []
        command = shlex.join(["plumbline", "run", "--system", name, *named, "--mode=smoke"])
        return f"the first run: `{command}`"
    if sessions < SESSIONS:
        return (
            f"{pluralize(sessions, 'session')} of {name} so far: after at least "
            f"{SESSIONS - sessions} more, `plumbline baseline {name}` makes its first baseline"
        )
    return (
        f"{sessions} sessions of {name}: `plumbline baseline {name}` makes its first baseline, or "
        f"reports how many more it needs; then {inventory.accepting(name, folders)}"
    )


def _is_of(folder: Path, name: str) -> bool:
    try:
        plan = session_files.read_plan(folder)
    except (OSError, record.Damaged):
        return False
    # The sessions of a sweep are of single nodes.
    whole = plan["system"] == name and "sweep" not in plan["extras"]
    return whole and (folder / "records.jsonl").exists()
