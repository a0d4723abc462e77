"""Contradictions between systems and their Spack environments, for ``plumbline lint``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from plumbline.core import paths
from plumbline.core.errors import Fault
from plumbline.core.text import suggest
from plumbline.core.yamlfile import read_yaml
from plumbline.software.environments import (
    LOCK,
    MODELS,
    PACKAGES,
    SITE,
    Environment,
    list_environments,
)


def _system_file(system: str) -> Path:
    return paths.systems().find(f"{system}.yaml")


def faults(systems: dict[str, dict], only: bool = False) -> Iterator[str]:
    """Yield the contradictions between systems and their Spack environments, a line each.

    :arg systems: name -> content of the system's file.
    :arg only: whether these are not all systems, and the environments of others are skipped.
    """
    wanted = {
        Environment(system, environment["name"]): environment
        for system, content in systems.items()
        for environment in content.get("environments", [])
        if environment.get("extras", {}).get("provider") == "spack"
    }
    existing = list_environments()
    for environment in wanted:
        if environment not in existing:
            yield (
                f"{_system_file(environment.system)}: environment "
                f"{environment.toolchain}: its provider is spack, but "
                f"{environment.manifest} does not exist"
            )
    for environment in existing:
        if only and environment.system not in systems:
            continue
        if environment not in wanted:
            own = paths.systems().own / f"{environment.system}.yaml"
            if own.is_file() and not environment.manifest.is_relative_to(paths.spack_env().own):
                # A site's system need not use all that is shipped.
                continue
            yield (
                f"{environment.manifest}: no environment {environment.toolchain} with "
                f"extras.provider spack in {_system_file(environment.system)}"
            )
            continue
        try:
            for fault in _faults_of(environment, wanted[environment]):
                yield f"{environment.manifest}: {fault}"
        except Fault as err:
            yield from str(err).splitlines()
    yield from _not_run(wanted, existing)


def _not_run(wanted: dict[Environment, dict], existing: list[Environment]) -> Iterator[str]:
    """Yield what Spack builds for a system and no check of the system can run: without an
    environment that has the benchmark as a feature, ReFrame silently makes no test case."""
    built: dict[tuple[str, str], list[str]] = {}
    features: dict[str, set[str]] = {}
    for environment, of_reframe in wanted.items():
        # Detected features are those of what is built.
        if environment not in existing or of_reframe.get("extras", {}).get("detect"):
            continue
        features.setdefault(environment.system, set()).update(of_reframe.get("features", []))
        with contextlib.suppress(Fault):  # a faulty manifest is reported elsewhere
            for package in environment.root_packages():
                built.setdefault((environment.system, package), []).append(environment.toolchain)
    for (system, package), toolchains in built.items():
        for feature in (feature for feature, name in PACKAGES.items() if name == package):
            if feature not in features[system]:
                yield (
                    f"{_system_file(system)}: no environment has the feature {feature}, "
                    f"so no check runs {package}, which Spack builds for {', '.join(toolchains)}: "
                    f"add the feature to one of them"
                )


def _faults_of(environment: Environment, of_reframe: dict) -> Iterator[str]:
    packages = environment.configuration("packages")
    yield from _not_provided(environment, of_reframe, packages)
    yield from _not_pinned(environment, packages)
    yield from _wrong_roots(environment, packages)
    for path in [environment.manifest, *environment.included()]:
        if path.name != SITE:
            for absolute in _absolute_paths(read_yaml(path)):
                yield f"{path.name}: absolute path {absolute} outside an external's prefix"
    kept = environment.lock()
    if kept is None:
        yield f"has no {LOCK}: plumbline lock {environment.name}"
    elif why := environment.outdated(kept):
        yield f"{why}: plumbline lock {environment.name}"
    elif replaced := environment.replaced(kept):
        yield replaced


def _not_provided(environment: Environment, of_reframe: dict, packages: dict) -> Iterator[str]:
    """Yield what the ReFrame environment declares and the Spack environment does not have."""
    features, roots = set(of_reframe.get("features", [])), environment.roots()
    names = environment.root_packages()
    for feature in sorted(features & set(PACKAGES)):
        if PACKAGES[feature] not in names:
            yield f"feature {feature} of its ReFrame environment needs {PACKAGES[feature]}"
    for model in sorted(features & set(MODELS)) if "babelstream" in features else []:
        if not any(root.startswith("babelstream") and f"+{model}" in root for root in roots):
            yield f"feature {model} of its ReFrame environment needs a root babelstream+{model}"
    if "xccl" in features and not any("+xccl" in root for root in roots):
        yield "feature xccl of its ReFrame environment needs a root osu-micro-benchmarks+xccl"
    externals = [one for package in packages.values() for one in package.get("externals", [])]
    modules = {module for external in externals for module in external.get("modules", [])}
    for module in of_reframe.get("modules", []):
        if module not in modules:
            yield f"module {module} of its ReFrame environment belongs to no external"


def _not_pinned(environment: Environment, packages: dict) -> Iterator[str]:
    """Yield the root packages without a pinned version."""
    for name in sorted(environment.root_packages()):
        pinned = packages.get(name, {}).get("require", [])
        listed = [pinned] if isinstance(pinned, str) else pinned
        specs = [str(one.get("spec") if isinstance(one, dict) else one) for one in listed]
        if not specs or not all(spec.startswith("@=") for spec in specs):
            yield f"root {name} has no pinned version: packages: {name}: require: ['@=...']"


def _wrong_roots(environment: Environment, packages: dict) -> Iterator[str]:
    """Yield the roots with unknown toolchains, or without what a foreign target needs."""
    toolchains = environment.configuration("toolchains")
    targets = environment.content.get("concretizer", {}).get("targets", {})
    foreign = not targets.get("host_compatible", True)
    for root in environment.roots():
        for used in re.findall(r" %([\w-]+)", root):
            if used not in toolchains:
                known = suggest(used, toolchains)
                yield f"root {root}: no toolchain {used!r} in the included files; {known}"
        if foreign and " arch=" not in root:
            yield f"root {root}: with host_compatible false, it needs arch=linux-<os>-<target>"
    if foreign and not packages.get("glibc", {}).get("externals"):
        yield "no external glibc: include ../../common/<os>-<family>.yaml"


def _absolute_paths(value, key: str = "") -> Iterator[str]:
    """Yield the absolute paths in a file's content that are not of an external."""
    if key in ("prefix", "extra_attributes"):
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _absolute_paths(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _absolute_paths(inner, key)
    elif isinstance(value, str) and value.startswith("/"):
        yield value
