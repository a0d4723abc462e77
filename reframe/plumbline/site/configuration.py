"""ReFrame's configuration, gathered from ``systems/*.yaml``.

Each system file is a ReFrame configuration of one system and its environments. With
``extras.detect``, the topology, placements and memory of this machine are detected.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from plumbline.core import paths
from plumbline.core.errors import Fault, UnknownName, UnreadableFile, WrongFile, origin
from plumbline.core.files import writing
from plumbline.core.text import suggest
from plumbline.core.yamlfile import read_yaml
from plumbline.placement import devices, placement
from plumbline.placement.topology import PlacementError, Topology
from plumbline.site import job_patches, system

#: The system for any other machine.
LOCAL = "local"

#: Cost classes: what ReFrame's ``--mode`` can ask for.
TAGS = ("smoke", "nightly", "maintenance", "screen", "full")
#: Feature of all partitions in a session of test cases at published scale.
FULL_SCALE = "full"

#: Feature of a partition, unless its topology shows that its nodes have one NUMA domain alone.
NUMA = "several-numa-domains"

#: Variable with the folder of the sweep whose jobs a session submits, and the environment of these
#: jobs. It is empty, as the session on the node loads the toolchain.
SWEEP = "PLUMBLINE_SWEEP"
SWEEP_ENVIRONMENT = "sweep"

#: Variable with the file that a dry run writes its cases to. It then plans a session, for
#: `plumbline doctor` and `lint`, and skips what cannot run now. Without it, a dry run shows job
#: scripts, whatever is built.
PLAN_FILE = "PLUMBLINE_PLAN_FILE"

#: Variable of a ReFrame that refuses a check that cannot be loaded, where it would only warn.
COMPLETE = "PLUMBLINE_COMPLETE"
#: Variable of a plan that has the cases at published scale, too. ``--tag`` would select them as
#: well, and none of a check without a tag.
ALL_SCALES = "PLUMBLINE_ALL_SCALES"

#: Variable of a session in a job that has the node for itself: ``system:partition``.
ON_NODE = "PLUMBLINE_ON_NODE"

#: Reasons of Slurm for which ReFrame cancels a job, as it would wait until an administrator acts:
#: ReFrame's own default, that the partition is down, that the job's QOS or account is gone or not
#: allowed there, and that the partition, QOS or account can never give the nodes or the time that
#: it requests. The names are of Slurm's src/common/job_state_reason.c.
NEVER = (
    *("ReqNodeNotAvail", "PartitionDown", "PartitionInactive", "BadConstraints"),
    *("InvalidAccount", "AccountNotAllowed", "InvalidQOS", "QOSNotAllowed"),
    *("PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit"),
    *("QOSMaxNodePerJobLimit", "QOSMaxWallDurationPerJobLimit"),
    *("AssocMaxNodePerJobLimit", "AssocMaxWallDurationPerJobLimit"),
)

#: ReFrame's option with the site's own configuration.
_CONFIG_FILE = ("-C", "--config-file")


def system_files() -> list[Path]:
    """Return the system files of the site and the shipped ones, with ``local`` last, as it matches
    any host name."""
    return sorted(paths.systems().files("*.yaml"), key=lambda path: (path.stem == LOCAL, path.stem))


def config_files(arguments: Sequence[str] = ()) -> list[str]:
    """Return the site's own configuration files that ReFrame loads beside Plumbline's, in order:
    those of ``-C``, or else of ``RFM_CONFIG_FILES``.

    :arg arguments: a command line of ReFrame.
    """
    from reframe.core.config import find_config_files

    # ReFrame's older variable counts if the newer one is not set.
    variable = os.environ.get("RFM_CONFIG_FILES") or os.environ.get("RFM_CONFIG_FILE") or ""
    named = option_values(arguments, *_CONFIG_FILE)
    found = find_config_files(config_file=named or variable.split(":"))
    return [file for file in found if Path(file).resolve() != paths.SETTINGS]


def take_config_files(arguments: Sequence[str]) -> list[str]:
    """Return a command line of ReFrame without ``-C``: its files are in ``RFM_CONFIG_FILES`` then,
    after Plumbline's own configuration.

    :raises Fault: if a file does not exist.
    """
    files = [str(Path(file).absolute()) for file in config_files(arguments)]
    for file in files:
        if not Path(file).is_file():
            raise UnreadableFile(f"{file}: no such file: correct -C or RFM_CONFIG_FILES")
    os.environ["RFM_CONFIG_FILES"] = ":".join([str(paths.SETTINGS), *files])
    return _separated(arguments, *_CONFIG_FILE)[1]


def check_system(name: str | None) -> None:
    """Check that the system that is named, or else that of ``RFM_SYSTEM``, has a file, and the
    partition if one is named. A system of the site's own configuration is left to ReFrame.

    :arg name: of the system; that of a partition may follow, after a colon.
    :raises Fault: with similar names; or if the file is wrong.
    """
    wanted, _, partition = (name or os.environ.get("RFM_SYSTEM", "")).partition(":")
    known = {path.stem: path for path in system_files()}
    if not wanted or (wanted not in known and config_files()):
        return
    if wanted not in known:
        origin = "" if name else "RFM_SYSTEM: "
        file = paths.systems().find(f"{wanted}.yaml")
        message = f"{origin}{file}: no such system; {suggest(wanted, known)}"
        raise Fault(message, code="system.not-found")
    if partition:
        (found,) = read_system(known[wanted])["systems"]
        partitions = [str(listed.get("name")) for listed in found.get("partitions") or []]
        if partition not in partitions:
            raise Fault(
                f"{known[wanted]}: no partition {partition!r}; {suggest(partition, partitions)}",
                code="system.not-found",
            )


def check_mode(name: str) -> bool:
    """Check that a mode exists, and return whether it is one of the site's own configuration, and
    not Plumbline's.

    :raises Fault: with similar names; or if the site's configuration cannot be loaded.
    """
    from reframe.core.config import load_config

    try:
        own = {mode["name"] for mode in load_config(*config_files())["modes"]}
    except KeyError:
        own = set()
    except Exception as error:
        # ReFrame executes the site's files, and lets their errors through.
        raise WrongFile(origin(error, map(Path, config_files()))) from None
    if name not in {*own, *TAGS}:
        raise UnknownName(f"--mode {name}: no such mode; {suggest(name, [*TAGS, *own])}")
    return name in own


def read_system(path: Path) -> dict:
    """Return the content of a system file, with detected values.

    :raises Fault: if it cannot be read or is wrong, with the file and the fix.
    """
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("systems"), list):
        raise Fault(
            f"{path}: it needs a list `systems` at the top level; see systems/local.yaml",
            code="system.wrong-file",
        )
    unknown = set(content) - {"systems", "environments"}
    if unknown:
        raise Fault(
            f"{path}: unknown keys {', '.join(sorted(map(str, unknown)))}; "
            f"a system file has `systems` and `environments`",
            code="system.wrong-file",
        )
    names = [s.get("name") if isinstance(s, dict) else None for s in content["systems"]]
    if names != [path.stem]:
        raise Fault(
            f"{path}: it must define one system with the file's name {path.stem!r}",
            code="system.wrong-file",
        )
    environments = content.get("environments", [])
    if not isinstance(environments, list):
        raise Fault(f"{path}: `environments` is not a list", code="system.wrong-file")
    for environment in environments:
        if not isinstance(environment, dict) or environment.get("target_systems") != names:
            raise Fault(
                f"{path}: every environment needs `target_systems: [{path.stem}]`",
                code="system.wrong-file",
            )
    for partition in content["systems"][0].get("partitions") or []:
        if isinstance(partition, dict) and (partition.get("extras") or {}).get("detect"):
            _detect(path, partition)
    found = list(system.faults({"environments": [], **content}))
    if found:
        raise Fault("\n".join(f"{path}: {fault}" for fault in found), code="system.wrong-file")
    return content


def _detect(path: Path, partition: dict) -> None:
    """Detect this machine, without ReFrame's cache, as a shared home may have another machine's."""
    from reframe.utility.cpuinfo import cpuinfo

    extras = partition["extras"]
    partition["processor"] = cpuinfo()
    usable = sorted(os.sched_getaffinity(0))
    try:
        partition["devices"], of_gpus, _ = devices.detect(usable)
        extras |= {"usable_cpus": usable, **of_gpus}
        topology = Topology.of_partition(partition["processor"], partition["devices"], extras)
    except PlacementError as err:
        raise Fault(
            f"{path}: this machine's topology could not be detected: {err}",
            code="system.topology-undetected",
        ) from None
    extras.setdefault("placements", placement.of_one_node(topology))
    scratch = paths.scratch()
    if not scratch.is_dir() or not os.access(scratch, os.W_OK | os.X_OK):
        raise Fault(
            f"{path}: scratch folder {scratch} does not exist or is not writable; "
            f"set PLUMBLINE_SCRATCH to one that is",
            code="scratch.not-writable",
        )
    if (numbers := numa_numbers(partition["processor"])) != [*range(len(numbers))]:
        extras["numa_os_numbers"] = numbers
    extras |= {
        "memory": host_memory(),
        # Variables in a scratch folder's name are replaced, but a $ here is not one.
        "scratch": str(scratch).replace("$", "$$"),
    }


#: The kernel's NUMA domains, and the GPUs of NVIDIA's driver.
_DOMAINS, _GPUS = Path("/sys/devices/system/node"), Path("/proc/driver/nvidia/gpus")


def numa_numbers(processor: dict) -> list[int]:
    """Return Linux' number of each NUMA domain of this machine. ReFrame sorts them by their CPUs,
    those without CPUs first."""
    known: dict[int, list[int]] = {}
    for number in sorted(int(folder.name[4:]) for folder in _DOMAINS.glob("node[0-9]*")):
        mask = (_DOMAINS / f"node{number}" / "cpumap").read_text().replace(",", "")
        known.setdefault(int(mask, 16), []).append(number)
    return [
        known[cpus].pop(0) if known.get(cpus := int(mask, 16)) else index
        for index, mask in enumerate(processor["topology"].get("numa_nodes", []))
    ]


def host_memory() -> int:
    """Return the bytes of this machine's memory, without that of its GPUs.

    On POWER9 with V100 and on Grace Hopper, Linux has the memory of each GPU too, as a NUMA domain
    without CPUs (``nv-procfs.c`` of NVIDIA's open kernel modules).
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for status in _GPUS.glob("*/numa_status"):
        try:
            found = re.match(r"Node:\s*(\d+)\s+Status:\s*online\b", status.read_text())
            meminfo = (_DOMAINS / f"node{found[1]}" / "meminfo").read_text() if found else ""
        except OSError:
            continue
        if size := re.search(r"MemTotal:\s*(\d+) kB", meminfo):
            total -= int(size[1]) * 1024
    return total


def this_machine() -> dict:
    """Return a partition with the detected values of this machine.

    :raises Fault: if they cannot be detected, or there is no scratch folder.
    """
    partition: dict[str, Any] = {"extras": {}}
    _detect(paths.systems().find(f"{LOCAL}.yaml"), partition)
    return partition


#: Variable with the name for the session, of :func:`new_name`.
NAME = "PLUMBLINE_SESSION_NAME"
_STAMP = "%Y%m%dT%H%M%SZ"


def new_name() -> str:
    """Return a unique name for a session: its start in UTC and a random part."""
    return f"{time.strftime(_STAMP, time.gmtime())}-{secrets.token_hex(3)}"


def session_id() -> str:
    """Return the name of this process' session, which its child processes do not get."""
    return os.environ.pop(NAME, None) or new_name()


def is_session_name(name: str) -> bool:
    """Return whether a name is of :func:`new_name`."""
    return re.fullmatch(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6,}", name) is not None


def began(folder: Path) -> datetime.datetime:
    """Return a session's start in UTC, by its folder's name, or else by its plan's time."""
    utc = datetime.timezone.utc
    try:
        return datetime.datetime.strptime(folder.name.partition("-")[0], _STAMP).replace(tzinfo=utc)
    except ValueError:
        plan = folder / "plan.json"
        path = plan if plan.exists() else folder
        return datetime.datetime.fromtimestamp(path.stat().st_mtime, utc)


def variant_feature(variant: str) -> str:
    """Return the feature of a partition that has a variant."""
    return f"variant-{variant}"


def asked_for(tag: str, arguments: list[str]) -> bool:
    """Return whether a ReFrame command line selects a tag, by ``--tag`` or ``--mode``."""
    patterns = option_values(arguments, "-t", "--tag")
    patterns += [f"^{re.escape(mode)}$" for mode in option_values(arguments, "--mode")]
    try:
        return any(re.search(pattern, tag) for pattern in patterns)
    except re.error:
        return False


def option_values(arguments: Sequence[str], *options: str) -> list[str]:
    """Return the values of an option of a ReFrame command line.

    :arg options: its names, such as ``-c`` and ``--checkpath``.
    """
    return _separated(arguments, *options)[0]


def _separated(arguments: Sequence[str], *options: str) -> tuple[list[str], list[str]]:
    """Return the values of an option, and all other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(*options, dest="values", action="append", default=[])
    found, others = parser.parse_known_args([*arguments])
    return found.values, others


#: ReFrame's options that select test cases: their names here, and as ReFrame has them.
_NARROWING = {
    "name": ("-n", "--name"),
    "exclude": ("-x", "--exclude"),
    "tag": ("-t", "--tag", "--mode"),
    "exclude_tag": ("-T", "--exclude-tag"),
    "environment": ("-p", "--prgenv"),
    "expression": ("-E", "--filter-expr"),
}


def narrowing(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of those options of a ReFrame command line that select test cases, and of
    ``--system`` if it names a partition. Without any, the dictionary is empty."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, options in _NARROWING.items():
        parser.add_argument(*options, dest=name, action="append")
    parser.add_argument("--system", default=os.environ.get("RFM_SYSTEM", ""))
    found = vars(parser.parse_known_args([*arguments])[0])
    if ":" not in found["system"]:
        del found["system"]
    return {name: values for name, values in found.items() if values}


def log_level(arguments: list[str]) -> str:
    """Return ReFrame's log level, by the ``-v`` of its command line.

    It is low by default: for each line, ReFrame evaluates all attributes of the test case, and on
    Slurm it runs a command for the node list. This took two thirds of a case's overhead.
    """
    short = "".join(word for word in arguments if re.fullmatch("-[a-zA-Z]+", word))
    count = short.count("v") + arguments.count("--verbose")
    return ["verbose", "verbose", "debug", "debug2"][min(count, 3)]


def _for_sweeps(found: dict, environments: list[dict]) -> None:
    """Change a system for the session that submits a sweep's jobs, and for the sessions in them."""
    if folder := os.environ.get(SWEEP):
        sweep = read_yaml(Path(folder) / "sweep.json")
        for partition in found["partitions"]:
            if (found["name"], partition["name"]) == (sweep["system"], sweep["partition"]):
                partition["max_jobs"] = sweep["jobs"]
                partition["environs"] = [*partition.get("environs", []), SWEEP_ENVIRONMENT]
                environments.append({"name": SWEEP_ENVIRONMENT, "target_systems": [found["name"]]})
    system, _, name = os.environ.get(ON_NODE, "").partition(":")
    if found["name"] != system:
        return
    found["partitions"] = [part for part in found["partitions"] if part["name"] == name]
    for partition in found["partitions"]:
        extras = partition.setdefault("extras", {})
        extras["placements"] = [
            placed for placed in extras.get("placements", []) if placement.fits_one_node(placed, 1)
        ]
        # The launcher remains that of the job's scheduler.
        extras["x_within"] = partition["scheduler"]
        partition |= {"scheduler": "local", "access": [], "sched_options": {}, "max_jobs": 1}


def _several_domains(partition: dict, extras: dict) -> bool:
    """Return whether the nodes of a partition have several NUMA domains, as far as is known."""
    try:
        known = partition.get("processor") or {}
        return len(Topology.from_processor(known, extras.get("usable_cpus")).by_numa()) > 1
    except PlacementError:
        return True


def gather(
    files: Iterable[Path], session: str, running: bool, full: bool, level: str = "verbose"
) -> dict:
    """Return ReFrame's whole configuration.

    :arg files: the system files that it has.
    :arg session: the session's name; its folder has stage, output, report and log.
    :arg running: whether test cases are run, so that the session's folder is needed.
    :arg full: whether cases at published scale may be selected.
    :arg level: of ReFrame's log.
    :raises Fault: if a system file is faulty.
    """
    folder = paths.results() / "sessions" / session
    systems, environments = [], []
    for path in files:
        content = read_system(path)
        (found,) = content["systems"]
        environments += content.get("environments", [])
        _for_sweeps(found, environments)
        for partition in found["partitions"]:
            if partition["scheduler"] in ("slurm", "squeue"):
                partition["sched_options"] = {
                    **job_patches.cancel_options(NEVER),
                    **partition.get("sched_options", {}),
                }
            features = partition.setdefault("features", [])
            extras = partition.get("extras") or {}
            wanted = [
                *extras.get("placements", []),
                *map(variant_feature, extras.get("variants", {})),
            ]
            if _several_domains(partition, extras):
                wanted.append(NUMA)
            features += [feature for feature in wanted if feature not in features]
            if full:
                features.append(FULL_SCALE)
        systems.append(found)
    handlers = [{"type": "file", "name": str(folder / "reframe.log"), "level": level,
                 "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s"}]  # fmt: skip
    if running:
        if len(str(folder).split()) != 1:
            raise Fault(
                f"{folder}: ReFrame cannot start jobs in a folder with a space in its name: set "
                f"PLUMBLINE_RESULTS to a folder without a space",
                code="files.space-in-name",
            )
        remedy = "free disk space, or set PLUMBLINE_RESULTS to a writable folder"
        with writing(folder, "cannot be created ({}): " + remedy):
            folder.mkdir(parents=True, exist_ok=True)
    return {
        "systems": systems,
        "environments": environments,
        "modes": [{"name": tag, "options": [f"--tag=^{tag}$"]} for tag in TAGS],
        "logging": [{
            "level": level,
            # So that a site's own `handlers` do not replace the session's log.
            "handlers$": [{"type": "stream", "name": "stdout", "level": "info",
                           "format": "%(message)s"}, *(handlers if running else [])],
            "handlers": [],
            "handlers_perflog": [],
        }],
        "general": [{
            "check_search_path": paths.checks(),
            "report_file": str(folder / "report.json"),
            # The summary has the headline figures, the records have all.
            "perf_info_level": "verbose",
            "colorize": sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
            # So that another system can be listed without its module system, which resolves the
            # conflicts of its modules itself.
            "resolve_module_conflicts": False,
        }],
        # Hundreds of nodes at once would overload a database on a shared file system.
        "storage": [{"enable": ON_NODE not in os.environ,
                     "sqlite_db_file": str(paths.results() / "reframe.db")}],
    }  # fmt: skip
