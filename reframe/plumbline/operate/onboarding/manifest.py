"""Drafts the Spack environments of a system's toolchains: ``spack-env/SYSTEM/``."""

from __future__ import annotations

import contextlib
import platform
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

import archspec.cpu

from plumbline.core import paths
from plumbline.operate.onboarding.commented import commented
from plumbline.operate.onboarding.toolchains import External, Toolchain
from plumbline.software import environments

#: Programming model of a toolchain -> the models of BabelStream, and what the other benchmarks are
#: built with; {} is the GPUs' architecture.
_MODELS = {
    "": (("omp~serial", "serial~omp"), ""),
    "cuda": (("omp~cuda", "cuda~omp"), "+cuda cuda_arch={}"),
    "hip": (("omp~hip~rocm", "hip~omp+rocm"), "+rocm amdgpu_target={}"),
}

#: Features of an environment with the six benchmarks.
_BENCHMARKS = ["osu", "babelstream", "ior", "mdtest", "commscope", "gpcnet"]

#: Distributions with a name of their own in Spack that are rebuilds of another one.
_REBUILDS = {"rocky": "rhel", "almalinux": "rhel", "ol": "rhel", "centos": "rhel",
             "opensuse-leap": "sles", "sled": "sles"}  # fmt: skip


def operating_system() -> str:
    """Return Spack's name of this node's operating system, such as ``rhel9``; a rebuild has the
    name of what it rebuilds. Empty if it is not known."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    name = _REBUILDS.get(release["ID"], release["ID"])
    version = release.get("VERSION_ID", "")
    # Ubuntu's releases have two numbers.
    return name + (version if name == "ubuntu" else version.partition(".")[0])


def target(architectures: Iterable[str]) -> str:
    """Return the newest target that is supported by processors of all these architectures, by
    archspec's names: ReFrame's ``processor.arch``. A generic one if one is not known; empty if
    they have nothing in common."""
    known = [archspec.cpu.TARGETS.get(name) for name in architectures]
    if not known or None in known:
        family = archspec.cpu.host().family.name
        return "x86_64_v3" if family == "x86_64" else family
    first, *others = ([t, *t.ancestors] for t in known if t is not None)
    return next((t.name for t in first if all(t in listed for listed in others)), "")


def supported(name: str, compiler: str, version: str) -> str:
    """Return a target, or its newest ancestor that Spack's package of a compiler supports. Of one
    that archspec does not know, such as ROCm's, any target is taken to be supported."""
    wanted = archspec.cpu.TARGETS[name]
    compiler = {"intel-oneapi-compilers": "oneapi"}.get(compiler, compiler)
    for candidate in (wanted, *wanted.ancestors):
        with (
            contextlib.suppress(archspec.cpu.UnsupportedMicroarchitecture),
            warnings.catch_warnings(),
        ):
            # It warns of Intel's compilers for AMD's processors.
            warnings.simplefilter("ignore")
            candidate.optimization_flags(compiler, version)
            return str(candidate.name)
    return str(wanted.family.name)


def build_tools(target_name: str) -> Path:
    """Return the file of this operating system's build tools, which may not exist."""
    name = f"{operating_system()}-{environments.family(target_name)}.yaml"
    return paths.spack_env().find(f"common/{name}")


def why_not(target_name: str) -> str:
    """Return why nothing can be built for a target on this operating system, or an empty text."""
    if not target_name:
        return "its partitions have processors of different families"
    tools = build_tools(target_name)
    if not tools.is_file():
        return f"{tools}, this operating system's build tools, does not exist"
    return ""


def features(toolchain: Toolchain) -> list[str]:
    """Return the features of a toolchain's environment."""
    models = [model.partition("~")[0] for model in _MODELS[toolchain.model][0]]
    return ["mpi", *models, *_BENCHMARKS]


def toolchain_name(toolchain: Toolchain) -> str:
    """Return the name of a toolchain's compiler and MPI, in Spack's ``toolchains:``."""
    compiler, mpi, *_ = (external.package.replace("-", "_") for external in toolchain.externals)
    return f"{compiler}_{mpi}"


def environment(toolchain: Toolchain, target_name: str) -> str:
    """Return the ``spack.yaml`` of a toolchain."""
    models, others = _MODELS[toolchain.model]
    others = others.format(toolchain.gpu.removeprefix("sm_"))
    architecture = f"arch=linux-{operating_system()}-{target_name}"
    on_gpu = [f" {others.partition(' ')[2]}" if n and others else "" for n in range(len(models))]
    content = {
        "spack": {
            "include": [
                {"path": "../site.yaml", "optional": True},
                "../externals.yaml",
                f"../../common/{build_tools(target_name).name}",
                "../../common/benchmarks.yaml",
            ],
            "concretizer": {"unify": "when_possible", "targets": {"host_compatible": False}},
            "specs": [
                {
                    "matrix": [
                        [
                            f"osu-micro-benchmarks{others}",
                            *(f"babelstream+{m}{g}" for m, g in zip(models, on_gpu, strict=True)),
                            "ior",
                            "gpcnet",
                            f"comm-scope{others}",
                        ],
                        [f"{architecture} %{toolchain_name(toolchain)}"],
                    ]
                }
            ],
            "view": {
                "default": {
                    "root": "view",
                    "link": "roots",
                    "projections": {
                        f"babelstream+{(model := words.partition('~')[0])}": f"babelstream-{model}"
                        for words in models
                    },
                }
            },
        }
    }
    modules = ", ".join(toolchain.modules) or "no modules"
    text = f"Drafted by plumbline init: {modules}. To be confirmed on the machine."
    one_each = "One folder per model: a view cannot have a package twice in one folder."
    view = ("spack", "view", "default", "projections")
    return commented(content, {(): [text, *toolchain.doubts], view: [one_each]})


def externals(toolchains: Iterable[Toolchain], target_name: str) -> str:
    """Return the ``externals.yaml`` of a system. Externals have no target but a family."""
    architecture = f"linux-{operating_system()}-{environments.family(target_name)}"
    packages: dict[str, dict] = {}
    named: dict[str, list[dict[str, str]]] = {}
    for toolchain in toolchains:
        for external in toolchain.externals:
            entry = _entry(external, architecture)
            package = packages.setdefault(external.package, {"externals": [], "buildable": False})
            if entry not in package["externals"]:
                package["externals"].append(entry)
        compiler, mpi, *_ = toolchain.externals
        languages = [key for key, _ in compiler.compilers]
        named[toolchain_name(toolchain)] = [
            {"spec": f"%{key}={_version(compiler)}", "when": f"%{key}"} for key in languages
        ] + [{"spec": f"%mpi={_version(mpi)}", "when": "%mpi"}]
    text = "Drafted by plumbline init, from the modules. Prefixes and versions: to be confirmed on "
    return commented(
        {"packages": packages, "toolchains": named}, {(): [f"{text}the machine (docs/spack.md)."]}
    )


def _entry(external: External, architecture: str) -> dict:
    entry: dict = {"spec": f"{external.spec} arch={architecture}", "prefix": external.prefix}
    if external.modules:
        entry["modules"] = list(external.modules)
    if external.compilers:
        entry["extra_attributes"] = {"compilers": dict(external.compilers)}
    return entry


def _version(external: External) -> str:
    """Return an external's name and version."""
    found = re.match(r"[\w-]+@=[\w.]+", external.spec)
    return found[0] if found else external.package
