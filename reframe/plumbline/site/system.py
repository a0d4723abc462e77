"""Validation of system files.

A system file is a ReFrame configuration in ReFrame's schema. Beyond the schema, it is compared with
the names that ReFrame and Plumbline know, and with its own topology.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import jsonschema
import reframe.core.backends as backends
import reframe.schemas

from plumbline.core import paths, schemas
from plumbline.core.errors import with_code
from plumbline.core.text import pluralize, suggest
from plumbline.placement import binding, placement
from plumbline.placement.binding import LAUNCHERS
from plumbline.placement.topology import PlacementError, Topology, cpus_of_mask
from plumbline.reference.registers import Tables
from plumbline.reference.row import Row
from plumbline.site import ended_jobs, launchers, schedulers  # noqa: F401  registers ours
from plumbline.site.reframe_patches import schema_with_later_names
from plumbline.software import providers

#: What ReFrame's patterns admit. Its versions differ: docs/own-configuration.md.
_NAME = "of letters, digits, _ and, in names and features, -, without a digit at the beginning"

#: Of the keys in a part of a schema: a site's own begin with x_.
_OWN_KEYS = {"additionalProperties": False, "patternProperties": {"^x_": {}}}


@functools.cache
def _schema() -> jsonschema.Draft7Validator:
    """Return the validator of ReFrame's schema, for the sections that a system file may have."""
    text = Path(reframe.schemas.__path__[0], "config.json").read_text(encoding="utf-8")
    whole = schema_with_later_names(json.loads(text))
    # ReFrame admits any key there: with a misspelt `num_devices`, a node has one GPU.
    for part in ("device_info", "topology_info"):
        whole["defs"][part] |= _OWN_KEYS
    # And a misspelt option leaves the default. Not all options are in the schema: ssh_hosts.
    options = whole["defs"]["sched_options"]
    options |= _OWN_KEYS
    for key in whole["defaults"]:
        if name := key.partition("/sched_options/")[2]:
            options["properties"].setdefault(name, {})
    parts = {key: whole["properties"][key] for key in ("systems", "environments")}
    return jsonschema.Draft7Validator({**whole, "properties": parts, "required": ["systems"]})


@functools.cache
def _schema_of_extras() -> jsonschema.Draft7Validator:
    text = Path(__file__).with_name("extras.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft7Validator(json.loads(text))


def _where(content: dict, place: schemas.Place) -> str:
    """Return how a message about a place in a system file begins."""
    if place[:2] == ["systems", 0]:
        content, place = content["systems"][0], place[2:]
    start = ""
    if len(place) > 1 and place[0] in ("partitions", "environments"):
        kind, number = str(place[0]), int(place[1])
        one, place = content[kind][number], place[2:]
        name = one.get("name") if isinstance(one, dict) else None
        start = f"{kind.removesuffix('s')} {name or number + 1}: "
    return start + schemas.prefix(place)


def faults(content: dict) -> Iterator[str]:
    """Yield the faults of a system file that could be read."""
    wrong = [*schemas.faults(_schema(), content, _NAME)]
    for place, fault in wrong:
        yield f"{_where(content, place)}{fault}"
    if wrong:
        return
    (system,) = content["systems"]
    with_modules = [p["name"] for p in [*system["partitions"], *content["environments"]]
                    if p.get("modules")]  # fmt: skip
    if with_modules and system.get("modules_system", "nomod") == "nomod":
        yield (
            f"{', '.join(with_modules)}: modules are listed, but no module system loads them: set "
            f"modules_system to lmod, tmod4 or envmod"
        )
    yield from _faults_of_patterns(system["hostnames"])
    if system["name"] != "local" and ".*" in system["hostnames"]:
        yield "hostnames: '.*' matches every host and would hide the systems after it"
    environments = {environment["name"]: environment for environment in content["environments"]}
    named = {"partitions": system["partitions"], "environments": content["environments"]}
    yield from (
        f"{kind}: a name is used twice"
        for kind, listed in named.items()
        if len({one["name"] for one in listed}) != len(listed)
    )
    for partition in system["partitions"]:
        found = [*_faults_of_jobs(partition, environments), *_faults_of_extras(partition)]
        for fault in found:
            yield f"partition {partition['name']}: {fault}"
    used = {name for partition in system["partitions"] for name in partition.get("environs", [])}
    for name, environment in environments.items():
        if name not in used:
            yield f"environment {name}: no partition has it among its environs"
        extras = environment.get("extras", {})
        if extras.get("provider") not in providers.PROVIDERS:
            hint = suggest(str(extras.get("provider")), providers.PROVIDERS)
            yield f"environment {name}: extras.provider {extras.get('provider')!r}; {hint}"
        launcher = extras.get("launcher")
        if launcher and not _registered(backends.getlauncher, launcher):
            yield f"environment {name}: extras.launcher {launcher!r} is not known to ReFrame"


def _faults_of_patterns(hostnames: list[str]) -> Iterator[str]:
    for pattern in hostnames:
        try:
            re.compile(pattern)
        except re.error as err:
            hint = ""
            if re.fullmatch(r"[\w.*?-]+", pattern):
                # It is one of file names.
                meant = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
                hint = f": write '{meant}'"
            yield f"hostnames: {pattern!r} is not a regular expression: {err}{hint}"


def _faults_of_jobs(partition: dict, environments: dict) -> Iterator[str]:
    for name in partition.get("environs", []):
        if name not in environments:
            hint = suggest(name, environments)
            yield f"environs: {name!r} is not among the file's environments; {hint}"
    if not _registered(backends.getlauncher, partition["launcher"]):
        yield f"launcher {partition['launcher']!r} is not known to ReFrame or Plumbline"
    else:
        yield from _unbound(partition, environments)
    if not _registered(backends.getscheduler, partition["scheduler"]):
        yield f"scheduler {partition['scheduler']!r} is not known to ReFrame or Plumbline"
    if partition["scheduler"] == "sge" and partition.get("access"):
        yield (
            f"access: ReFrame's scheduler sge does not write it into job scripts: jobs would run "
            f"without {' '.join(partition['access'])}: remove it, and give these options to each "
            f"session with -J (docs/systems.md)"
        )


def _faults_of_extras(partition: dict) -> Iterator[str]:
    processor, extras = partition.get("processor", {}), partition.get("extras", {})
    # YAML reads some keys as no text: on, 5.
    texts = {str(key): value for key, value in extras.items()}
    wrong = [*schemas.faults(_schema_of_extras(), texts)]
    for place, fault in wrong:
        yield f"{schemas.prefix(['extras', *place])}{fault}"
    if wrong:
        return
    pattern = extras.get("rack_pattern")
    if pattern is not None and not _has_group(pattern):
        yield (
            f"extras.rack_pattern: {pattern!r} is not a regular expression with a group, the rack"
        )
    yield from _faults_of_variants(extras.get("variants", {}))
    placements = extras.get("placements", [])
    if not isinstance(placements, list):
        yield f"extras.placements: {placements!r} is not a list"
        return
    for name in placements:
        if not isinstance(name, str) or not placement.exists(name):
            yield f"extras.placements: no placement {name!r}; {placement.suggestion(str(name))}"
            return
    if processor.get("topology"):
        yield from _faults_of_topology(processor, partition.get("devices", []), extras)


#: Of a variable that Plumbline sets or unsets itself.
_OVERRULED = "the job or task.sh sets or unsets it (docs/launchers.md, words before the program)"


def _faults_of_variants(variants: dict) -> Iterator[str]:
    for name, variant in variants.items():
        if found := sorted({*variant.get("env_vars", {})} & binding.overruled()):
            yield (
                f"extras.variants.{name}.env_vars: {', '.join(found)}: {_OVERRULED}, so the "
                f"variant would measure the same without it: remove it"
            )


#: Schedulers that give a job the cores alone that it requests. For PBS and LSF, jobs request all of
#: their nodes.
_SHARING = ("slurm", "squeue", "flux-batch")


def warnings(systems: dict[str, dict]) -> Iterator[str]:
    """Yield messages about schedulers of which jobs are not watched, nodes that jobs may share, and
    variables that have no effect in the cases of a Benchmark. They are no faults: a scheduler may
    share no nodes, and a site's plain checks may need the variables.

    :arg systems: name -> content of the system's file.
    """
    for name, content in systems.items():
        (system,) = content["systems"]
        where = f"{paths.systems().find(f'{name}.yaml')}: partition "
        yield from ended_jobs.unwatched(
            {where + one["name"]: one["scheduler"] for one in system["partitions"]}
        )
        for one in system["partitions"]:
            exclusive = any("--exclusive" in option for option in one.get("access", []))
            if one["scheduler"] in _SHARING and not exclusive:
                yield with_code(
                    f"{where}{one['name']}: access has no --exclusive: other jobs may run on the "
                    f"nodes that are measured, unless the scheduler gives whole nodes only: add it",
                    "system.shared-nodes",
                )
        places = {"": system}
        places |= {f"partition {one['name']}: ": one for one in system["partitions"]}
        places |= {f"environment {one['name']}: ": one for one in content.get("environments", [])}
        for place, one in places.items():
            if found := sorted({key for key, _ in one.get("env_vars", [])} & binding.overruled()):
                yield with_code(
                    f"{paths.systems().find(f'{name}.yaml')}: {place}env_vars: {', '.join(found)}: "
                    f"{_OVERRULED}, so only your own ReFrame checks get it",
                    "system.overruled-variable",
                )


def _unbound(partition: dict, environments: dict) -> Iterator[str]:
    """Yield the launchers whose tasks could not be placed: each of their cases would be skipped. A
    process manager without a binding is declared as such, on purpose."""
    used: dict[str, list[str]] = {}
    for name in partition.get("environs", []):
        extras = environments.get(name, {}).get("extras", {})
        if "process_manager" not in extras:
            used.setdefault(extras.get("launcher", partition["launcher"]), []).append(name)
    for launcher, names in used.items():
        if launcher not in LAUNCHERS and _registered(backends.getlauncher, launcher):
            yield (
                f"launcher {launcher!r} of {', '.join(names)}: Plumbline has no binding for it, so "
                f"it can place no task. Use one of {', '.join(LAUNCHERS)} in the partition or in "
                f"the environment's extras.launcher (docs/launchers.md)"
            )


def _faults_of_topology(processor: dict, devices: list, extras: dict) -> Iterator[str]:
    topology = processor["topology"]
    try:
        # A kernel without NUMA has no NUMA domains.
        listed = {
            level: [cpu for mask in topology[level] for cpu in cpus_of_mask(mask)]
            for level in ("cores", "sockets", "numa_nodes")
            if topology.get(level)
        }
    except ValueError as err:
        yield f"processor.topology: {err}"
        return
    if any(not {"type", "size"} <= set(cache) for cache in topology.get("caches", [])):
        yield "processor: topology.caches: each needs a type, such as L3, and its size in bytes"
        return
    # num_cpus of ReFrame also counts CPUs that are offline, which are in no mask.
    everything = set(listed.get("cores", []))
    # A NUMA domain may have memory and no core; no CPU is in two of them.
    wrong = [
        f"topology.{level}" for level, cpus in listed.items()
        if len(cpus) != len(set(cpus)) or set(cpus) != everything
    ]  # fmt: skip
    if wrong:
        yield (
            f"processor: {', '.join(wrong)} must contain each of the {len(everything)} CPUs of "
            f"topology.cores once"
        )
    strange = set(extras.get("usable_cpus", [])) - everything
    if strange:
        yield f"extras.usable_cpus: {sorted(strange)} are beyond the {len(everything)} CPUs"
        return
    try:
        cores = Topology.of_partition(processor, devices, extras)
    except PlacementError as err:
        yield f"extras: {err}"
        return
    for name in extras.get("placements", []):
        fault = placement.why_missing(name, cores)
        if fault:
            yield f"extras.placements: {fault}"


def _has_group(pattern: str) -> bool:
    try:
        return re.compile(pattern).groups > 0
    except re.error:
        return False


def _registered(find, name: str) -> bool:
    try:
        find(name)
    except Exception:
        return False
    return True


#: Features of an environment that are programming models, not benchmarks.
MODELS = {"mpi", "omp", "serial", "cuda", "hip", "kokkos", "sycl"}


def unknown_names(systems: dict[str, dict], tables: Tables) -> Iterator[str]:
    """Yield conditions of the systems that no table has: they would never match, without a message.

    :arg systems: name -> content of the system's file.
    """
    for name, content in systems.items():
        file = paths.systems().find(f"{name}.yaml")
        for partition in content["systems"][0]["partitions"]:
            extras = partition.get("extras", {})
            groups = {"extras": extras.get("conditions", {})}
            for group in ("variants", "file_systems"):
                groups |= {
                    f"extras.{group}.{key}": one.get("conditions", {})
                    for key, one in extras.get(group, {}).items()
                }
            for where, conditions in groups.items():
                for key in set(conditions) - set(tables.conditions):
                    yield (
                        f"{file}: partition {partition['name']}: {where}: condition {key!r} is not "
                        f"in reference/conditions.yaml; {suggest(key, tables.conditions)}"
                    )


def unknown_features(systems: dict[str, dict], known: Collection[str]) -> Iterator[str]:
    """Yield features of environments that nothing needs: they would never match.

    :arg known: benchmarks, and the features that the loaded checks need.
    """
    for name, content in systems.items():
        file = paths.systems().find(f"{name}.yaml")
        for environment in content.get("environments", []):
            for feature in {*environment.get("features", [])} - {*known} - MODELS:
                yield (
                    f"{file}: environment {environment['name']}: no loaded check needs feature "
                    f"{feature!r}: load the folder of its check with -c, or correct the name; "
                    f"{suggest(feature, [*known, *MODELS])}"
                )


def faults_of_rows(rows: Iterable[Row], tables: Tables, systems: dict[str, dict]) -> Iterator[str]:
    """Yield the contradictions between reference rows and systems, with file, line and column.

    :arg systems: name -> content of the system's file. Rows of others only need to have a file.
    """
    homeless: dict[str, list[Row]] = {}
    known = {path.stem for path in paths.systems().files("*.yaml")}
    for row in rows:
        content = systems.get(row.system)
        if content is None and (row.plain or row.system in known):
            # A plain check's may be of a system that only the site's configuration of ReFrame has.
            continue
        if content is None:
            homeless.setdefault(row.system, []).append(row)
            continue
        environments = [environment["name"] for environment in content.get("environments", [])]
        if row.toolchain and row.toolchain not in environments:
            fault = f"{row.system} has no environment {row.toolchain!r}; "
            yield tables.fault(row, "toolchain", fault + suggest(row.toolchain, environments))
        partitions = [partition["name"] for partition in content["systems"][0]["partitions"]]
        partition = row.conditions.get("partition")
        if partition and partition not in partitions:
            fault = f"{row.system} has no partition {partition!r}; {suggest(partition, partitions)}"
            yield tables.fault(row, "conditions", fault)
    for system, (first, *others) in homeless.items():
        more = f" (and {pluralize(len(others), 'more row')})" if others else ""
        file = paths.systems().find(f"{system}.yaml")
        yield tables.fault(first, "system", f"{system!r} has no {file}{more}")
