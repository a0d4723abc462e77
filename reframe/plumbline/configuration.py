"""ReFrame's configuration, gathered from ``systems/*.yaml``.

Each system file is a ReFrame configuration in its own schema with one system and its
environments. What a file of the machine at hand leaves to detection (``extras.detect``) is
filled in here: topology, the placements that it really has, and its memory.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

from plumbline import devices, paths, placement, provider, system
from plumbline.errors import Fault
from plumbline.provider import FEATURES
from plumbline.table import read_yaml

#: Cost classes: what ReFrame's ``--mode`` can ask for.
TAGS = ("smoke", "nightly", "maintenance", "screen", "full")


def system_files() -> list[Path]:
    """The system files; the machine at hand comes last, since any host name matches it.

    :raises Fault: if there are none.
    """
    folder = paths.systems()
    files = sorted(folder.glob("*.yaml"), key=lambda path: (path.stem == "local", path.stem))
    if not files:
        raise Fault(f"{folder}: no system file there; see systems/local.yaml")
    return files


def read_system(path: Path) -> dict:
    """One system file, detection done.

    :raises Fault: if it cannot be read or is no system file; the text names file and mend.
    """
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("systems"), list):
        raise Fault(f"{path}: no list `systems` at its top; see systems/local.yaml")
    unknown = set(content) - {"systems", "environments"}
    if unknown:
        raise Fault(
            f"{path}: unknown keys {', '.join(sorted(map(str, unknown)))}; "
            f"a system file has `systems` and `environments`"
        )
    names = [s.get("name") if isinstance(s, dict) else None for s in content["systems"]]
    if names != [path.stem]:
        raise Fault(f"{path}: it must define one system, of the file's own name {path.stem!r}")
    environments = content.get("environments", [])
    if not isinstance(environments, list):
        raise Fault(f"{path}: `environments` is no list")
    for environment in environments:
        if not isinstance(environment, dict) or environment.get("target_systems") != names:
            raise Fault(f"{path}: every environment needs `target_systems: [{path.stem}]`")
    for partition in content["systems"][0].get("partitions") or []:
        if isinstance(partition, dict) and (partition.get("extras") or {}).get("detect"):
            _detect(path, partition, environments)
    found = list(system.faults({"environments": [], **content}))
    if found:
        raise Fault("\n".join(f"{path}: {fault}" for fault in found))
    return content


def _detect(path: Path, partition: dict, environments: list[dict]) -> None:
    """Fills in what this machine is: topology by ReFrame's own detection, without its cache,
    which a shared home carries from one machine to the next."""
    from reframe.utility.cpuinfo import cpuinfo

    extras = partition["extras"]
    partition["processor"] = cpuinfo()
    usable = sorted(os.sched_getaffinity(0))
    try:
        partition["devices"], of_gpus = devices.nvidia(usable)
        extras |= {"usable_cpus": usable, **of_gpus}
        topology = placement.Topology.of_partition(
            partition["processor"], partition["devices"], extras
        )
    except placement.PlacementError as err:
        raise Fault(f"{path}: this machine's topology could not be detected: {err}") from None
    extras.setdefault("placements", placement.of_one_node(topology))
    scratch = paths.scratch()
    if not scratch.is_dir() or not os.access(scratch, os.W_OK | os.X_OK):
        raise Fault(
            f"{path}: scratch folder {scratch} is not there or not writable; "
            f"set PLUMBLINE_SCRATCH to one that is"
        )
    extras |= {
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        # Variables of a scratch folder are replaced; a $ in this one's name is no variable.
        "scratch": str(scratch).replace("$", "$$"),
    }
    for environment in environments:
        if (environment.get("extras") or {}).get("detect"):
            name = f"{path.stem}:{environment.get('name')}"
            there = provider.there(environment["extras"].get("provider", "path"), name)
            found = [feature for program in there for feature in FEATURES[program]]
            features = [*environment.get("features", []), *found]
            environment["features"] = list(dict.fromkeys(features))


def this_machine() -> dict:
    """A partition that is this machine, as detection fills it in.

    :raises Fault: if the machine cannot be told, or has no scratch folder.
    """
    partition = {"extras": {}}
    _detect(paths.systems(), partition, [])
    return partition


def session_id() -> str:
    """A name for a session that no other has: its start in UTC, then a random part."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


def variant_feature(variant: str) -> str:
    """The feature of a partition that has a variant."""
    return f"variant-{variant}"


def asked_for(tag: str, arguments: list[str]) -> bool:
    """Whether a ReFrame command line asks for a tag, by ``--tag`` or by ``--mode``."""
    patterns = []
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in ("-t", "--tag", "--mode"):
            value = value if equals else "".join(arguments[index + 1 : index + 2])
        elif re.match(r"-t.", argument):
            value = argument[2:]
        else:
            continue
        patterns.append(f"^{re.escape(value)}$" if option == "--mode" else value)
    try:
        return any(re.search(pattern, tag) for pattern in patterns)
    except re.error:
        return False


def log_level(arguments: list[str]) -> str:
    """How much ReFrame logs, by the ``-v`` of its command line.

    For each line that it logs of a test case, ReFrame looks at everything of the case; on Slurm it
    asks for the node list with a command of its own each time. Two thirds of the time that a case
    takes beside its program went there.
    """
    asked = sum(
        argument.count("v") if re.fullmatch(r"-[a-zA-Z]*v[a-zA-Z]*", argument) else 1
        for argument in arguments
        if argument == "--verbose" or re.fullmatch(r"-[a-zA-Z]*v[a-zA-Z]*", argument)
    )
    return ["verbose", "verbose", "debug", "debug2"][min(asked, 3)]


def gather(session: str, running: bool, full: bool, level: str = "verbose") -> dict:
    """The whole of ReFrame's configuration.

    :arg session: the session's name; stage, output, report and log lie in its folder.
    :arg running: whether test cases are run, so that the session's folder is needed.
    :arg full: whether cases at published scale may be selected.
    :arg level: of ReFrame's log.
    :raises Fault: if a system file is faulty.
    """
    folder = paths.results() / "sessions" / session
    systems, environments = [], []
    for path in system_files():
        content = read_system(path)
        (found,) = content["systems"]
        found["prefix"] = str(folder)
        for partition in found["partitions"]:
            features = partition.setdefault("features", [])
            extras = partition.get("extras") or {}
            wanted = [
                *extras.get("placements", []),
                *map(variant_feature, extras.get("variants", {})),
            ]
            features += [feature for feature in wanted if feature not in features]
            if full:
                features.append("full")
        systems.append(found)
        environments += content.get("environments", [])
    handlers = [{"type": "file", "name": str(folder / "reframe.log"), "level": level,
                 "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s"}]  # fmt: skip
    if running:
        if len(str(folder).split()) != 1:
            raise Fault(
                f"{folder}: ReFrame starts no job in a folder with a space in its name: set "
                f"PLUMBLINE_RESULTS to one without"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise Fault(
                f"{folder}: cannot be made ({err.strerror}): free the disk, or set "
                f"PLUMBLINE_RESULTS to a folder that can be written"
            ) from None
    return {
        "systems": systems,
        "environments": environments,
        "modes": [{"name": tag, "options": [f"--tag=^{tag}$"]} for tag in TAGS],
        "logging": [{
            "level": level,
            "handlers$": [{"type": "stream", "name": "stdout", "level": "info",
                           "format": "%(message)s"}],
            "handlers": handlers if running else [],
            "handlers_perflog": [],
        }],
        "general": [{
            "check_search_path": [str(paths.CHECKS)],
            "report_file": str(folder / "report.json"),
            # The closing table shows the headline figures, the records all of them.
            "perf_info_level": "verbose",
            # A foreign system can be listed where its module system is not installed; its modules'
            # conflicts are the module system's own to resolve.
            "resolve_module_conflicts": False,
        }],
        "storage": [{"enable": True, "sqlite_db_file": str(paths.results() / "reframe.db")}],
    }  # fmt: skip
