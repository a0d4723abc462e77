"""Toolchains among the modules: an MPI with its compiler and, for GPUs, CUDA or ROCm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plumbline.core.process import capture
from plumbline.core.text import natural
from plumbline.operate.onboarding.modules import Module, Modules
from plumbline.software import externals

#: Folders in a module's name before that of the program: ``mpi/openmpi/4.1.6``.
_IN = r"(?:[\w.+-]+/)*"

#: Name of an MPI's module.
_MPI = re.compile(
    _IN + r"(?P<name>openmpi|mpich|cray-mpich|mvapich2?|impi|intel-mpi|intel-oneapi-mpi|hpcx"
    r"|spectrum-mpi|mpt|parastationmpi|psmpi)(?:-x86_64|-aarch64)?(?:/.+)?",
    re.I,
)
_GCC = re.compile(_IN + r"(?:gcc|gcc-native|gnu|GCCcore)\d*/.+", re.I)
_VENDORS = re.compile(_IN + r"(?:nvhpc|nvidia|intel|compiler)[\w-]*/.+", re.I)
_CUDA = re.compile(_IN + r"(?:cuda|cudatoolkit|cudatoolkit-standalone)/.+", re.I)
_ROCM = re.compile(_IN + r"(?:rocm|amd|amd-mixed)/.+", re.I)

#: MPI -> Spack's package, where that is one of a plain prefix with ``bin/mpicc``, or Intel's.
_INTEL_MPI = "intel-oneapi-mpi"
_PACKAGES = {
    "openmpi": "openmpi", "hpcx": "openmpi", "mpich": "mpich", "mvapich": "mvapich",
    "mvapich2": "mvapich2", "cray-mpich": "cray-mpich", "spectrum-mpi": "spectrum-mpi",
    "impi": _INTEL_MPI, "intel-mpi": _INTEL_MPI, _INTEL_MPI: _INTEL_MPI,
}  # fmt: skip

#: Folder with ``bin/`` of what a vendor's installer put below Spack's prefix: prefix and version.
_PLACES = {
    "nvhpc": r"(.+)/Linux_\w+/(\d[\d.]*)/compilers",
    "intel-oneapi-compilers": r"(.+)/compiler/(\d[\d.]*)(?:/linux)?",
    _INTEL_MPI: r"(.+)/mpi/(202\d[\d.]*)",
}

#: Spack's package of a vendor's compilers -> variants, and its compilers of C, C++ and Fortran.
_COMPILERS = {
    "nvhpc": ("~blas~lapack~mpi", ("nvc", "nvc++", "nvfortran")),
    "intel-oneapi-compilers": ("", ("icx", "icpx", "ifx")),
}


#: Programming model -> Cray's module for its GPUs, and the variants of Cray MPICH.
_ACCELERATED = {"": "", "cuda": "craype-accel-nvidia{}", "hip": "craype-accel-amd-{}"}
_CRAY = {"": "", "cuda": "+cuda cuda_arch={}", "hip": "+rocm amdgpu_target={}"}


@dataclass(frozen=True)
class External:
    """An installed package that Spack uses and does not build.

    :ivar spec: name, version and variants.
    :ivar modules: to be loaded for it.
    :ivar compilers: Spack's name of a language -> path of the compiler.
    """

    package: str
    spec: str
    prefix: str
    modules: tuple[str, ...] = ()
    compilers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Toolchain:
    """A compiler, an MPI and, for GPUs, their stack.

    :ivar mpi: name of the MPI.
    :ivar gpu: architecture of its GPUs in ReFrame's form (``sm_80``, ``gfx90a``); empty without.
    :ivar gpu_aware: whether the MPI is known to take GPU memory.
    :ivar modules: in the order in which they are loaded.
    :ivar externals: compiler and MPI come first; empty if Spack cannot take the MPI as it is.
    :ivar doubts: what is to be confirmed.
    :ivar why_not: why there are no externals.
    """

    name: str
    mpi: str
    gpu: str
    modules: tuple[str, ...]
    externals: tuple[External, ...] = ()
    doubts: tuple[str, ...] = ()
    why_not: str = ""
    gpu_aware: bool = False

    @property
    def model(self) -> str:
        """The programming model of its GPUs: ``cuda``, ``hip``, or empty without."""
        return model_of(self.gpu)


def model_of(gpu: str) -> str:
    """Return the programming model of GPUs of an architecture; empty if there is none."""
    return "cuda" if gpu.startswith("sm_") else "hip" if gpu.startswith("gfx") else ""


def mpi_modules(listed: list[str]) -> dict[str, str]:
    """Return MPI -> its newest module."""
    found: dict[str, str] = {}
    for name in sorted(listed, key=natural):
        if match := _MPI.fullmatch(name):
            found[match["name"].lower()] = name
    return found


def find(modules: Modules, gpus: Iterable[str]) -> Iterator[Toolchain]:
    """Yield the toolchains of the newest module of each MPI: one without GPUs, and one for those of
    each architecture.

    :arg gpus: architectures of the partitions' GPUs.
    """
    compilers = _newest_first(modules.names, _GCC)
    found = {mpi: modules.show(name) for mpi, name in mpi_modules(modules.names).items()}
    found = found or _hierarchy(modules, compilers)
    wanted = sorted(set(gpus))
    several = {gpu for gpu in wanted if sum(model_of(gpu) == model_of(o) for o in wanted) > 1}
    stacks = {
        "": (),
        **{model: _STACKS[model](modules) for model in map(model_of, wanted) if model},
    }
    for mpi, module in found.items():
        gcc, doubts = _compiler_of(module, modules, compilers)
        for gpu in ("", *wanted):
            stack = stacks[model_of(gpu)]
            if gpu and not stack:
                continue
            label = "-".join(filter(None, [mpi, model_of(gpu), gpu if gpu in several else ""]))
            # ROCm has its own compiler.
            own = None if model_of(gpu) == "hip" else gcc
            yield _toolchain(
                Toolchain(label, mpi, gpu, (), doubts=doubts if own else ()),
                module, own, stack, modules.names,
            )  # fmt: skip


def _hierarchy(modules: Modules, compilers: list[str]) -> dict[str, Module]:
    """Return MPI -> module, of the newest compiler whose module makes one available: a GCC, or else
    a vendor's."""
    for name in [*compilers, *_newest_first(modules.names, _VENDORS)]:
        compiler = modules.show(name)
        if listed := mpi_modules(modules.within(compiler)):
            return {mpi: modules.show(inner, compiler) for mpi, inner in listed.items()}
    return {}


def _newest_first(names: list[str], pattern: re.Pattern[str]) -> list[str]:
    return [name for name in sorted(names, key=natural, reverse=True) if pattern.fullmatch(name)]


def _compiler_of(
    mpi: Module, modules: Modules, compilers: list[str]
) -> tuple[External | None, tuple[str, ...]]:
    """Return the compiler that an MPI belongs to, and what is uncertain about it: the vendor's that
    makes the MPI's module available, or that it loads; a GCC that does, or that its name has; the
    system's for the system's MPI; or else the newest GCC."""
    for name in filter(_VENDORS.fullmatch, (*mpi.within, *mpi.needs)):
        if vendors := _vendors(modules.show(name)):
            return vendors, ()
    named = re.search(r"gcc(?:core)?[-/]?(\d+(?:\.\d+)*)", mpi.name, re.I)
    certain = [
        name
        for name in compilers
        if name in (*mpi.within, *mpi.needs)
        or (named and f"{Module(name).version}.".startswith(f"{named[1]}."))
    ]
    of_system = mpi.prefix("mpicc").startswith("/usr/") or mpi.prefix("mpicc") == "/usr"
    for name in certain or ([] if of_system else compilers):
        if found := _gcc(modules.show(name)):
            doubt = f"Its compiler, {name}, is the newest GCC among the modules"
            return found, () if certain else (doubt,)
    if not mpi.within and (version := externals.version_at("gcc", "/usr")):
        doubt = "Its compiler is taken to be the system's GCC"
        return _gcc_at("/usr", version), () if of_system else (doubt,)
    return None, ()


def _vendors(module: Module) -> External | None:
    """Return the compilers of Intel's oneAPI or of NVIDIA's HPC SDK of a module."""
    for package, (variants, programs) in _COMPILERS.items():
        if found := _placed(module, package, programs[0]):
            prefix, version, folder = found
            paths = [f"{folder}/bin/{name}" for name in programs]
            known = zip(("c", "cxx", "fortran"), paths, strict=True)
            compilers = tuple((key, path) for key, path in known if os.access(path, os.X_OK))
            spec = f"{package}@={version}{variants}"
            return External(package, spec, prefix, (module.name,), compilers)
    return None


def _placed(module: Module, package: str, program: str) -> tuple[str, str, str] | None:
    """Return Spack's prefix of what a vendor's installer put in place, its version and its folder;
    ``None`` if the module's folder with a program is none of those that the installer makes."""
    # Intel's modules may have the link `latest`.
    folder = os.path.realpath(module.prefix(program))
    found = re.fullmatch(_PLACES[package], folder)
    return (found[1], found[2], folder) if found else None


def _gcc(module: Module) -> External | None:
    """Return the GCC of a module, if its programs exist."""
    prefix = module.prefix("gcc")
    version = externals.version_at("gcc", prefix) if prefix else None
    return _gcc_at(prefix, version, (module.name,)) if version else None


def _gcc_at(prefix: str, version: str, modules: tuple[str, ...] = ()) -> External:
    programs = {"c": ("c", "gcc"), "cxx": ("c++", "g++"), "fortran": ("fortran", "gfortran")}
    found = {
        key: (language, f"{prefix}/bin/{program}")
        for key, (language, program) in programs.items()
        if os.access(f"{prefix}/bin/{program}", os.X_OK)
    }
    languages = ",".join(language for language, _ in found.values())
    compilers = tuple((key, path) for key, (_, path) in found.items())
    spec = f"gcc@={version} languages:='{languages}'"
    return External("gcc", spec, prefix, modules, compilers)


def _cuda(modules: Modules) -> tuple[External, ...]:
    """Return the CUDA of the newest module that has a compiler, or that in its usual folder."""
    for module in _with_default(modules, _CUDA, "/usr/local/cuda"):
        prefix = module.prefix("nvcc")
        printed = capture(f"{prefix}/bin/nvcc", "--version") if prefix else None
        if found := re.search(r"\bV(\d[\d.]*)", printed or ""):
            return (External("cuda", f"cuda@={found[1]}", prefix, _names(module)),)
    return ()


def _rocm(modules: Modules) -> tuple[External, ...]:
    """Return the parts of the ROCm of the newest module that has a compiler, or of that in its
    usual folder."""
    for module in _with_default(modules, _ROCM, "/opt/rocm"):
        prefix = module.prefix("hipcc")
        try:
            version = (Path(prefix) / ".info" / "version").read_text().partition("-")[0].strip()
        except OSError:
            continue
        llvm, names = f"{prefix}/llvm", _names(module)
        compilers = (("c", f"{llvm}/bin/amdclang"), ("cxx", f"{llvm}/bin/amdclang++"))
        return (
            External("llvm-amdgpu", f"llvm-amdgpu@={version}", llvm, names, compilers),
            External("hip", f"hip@={version}+rocm", prefix, names),
            External("hsa-rocr-dev", f"hsa-rocr-dev@={version}", prefix, names),
        )
    return ()


#: Programming model -> the function that finds its stack.
_STACKS = {"cuda": _cuda, "hip": _rocm}


def _with_default(modules: Modules, pattern: re.Pattern[str], folder: str) -> Iterator[Module]:
    """Yield the matching modules, the newest first, and a folder as a module without a name."""
    yield from map(modules.show, _newest_first(modules.names, pattern))
    yield Module("", folders=(folder,))


def _names(*modules: Module) -> tuple[str, ...]:
    """Return the names of those modules that have one."""
    return tuple(module.name for module in modules if module.name)


def _toolchain(
    bare: Toolchain,
    module: Module,
    compiler: External | None,
    stack: tuple[External, ...],
    names: list[str],
) -> Toolchain:
    """Return a toolchain with its modules and externals.

    :arg module: of the MPI.
    :arg stack: of the GPUs; if there is no other compiler, its first part is it.
    :arg names: of all modules.
    """
    mpi, gpu = bare.mpi, bare.gpu
    package, prefix, installed = _PACKAGES.get(mpi, ""), module.prefix("mpicc"), ""
    if package == _INTEL_MPI and prefix:
        prefix, installed, _ = _placed(module, package, "mpicc") or ("", "", "")
    why_not = ""
    if not package:
        why_not = f"Spack takes no {mpi} from a plain prefix"
    elif not prefix:
        why_not = f"no folder that {module.name} sets has bin/mpicc" + (
            " where Intel's installer puts it" if package == _INTEL_MPI else ""
        )
    elif compiler is None and not stack:
        why_not = "no compiler was found among the modules, or in /usr"
    architecture = gpu.removeprefix("sm_")
    accelerated = _ACCELERATED[bare.model].format(architecture)
    of_mpi: tuple[str, ...] = (module.name,)
    if mpi == "cray-mpich" and accelerated in names:
        of_mpi = (accelerated, module.name)
    before = [*(compiler.modules if compiler else ()), *(name for e in stack for name in e.modules)]
    bare = replace(bare, modules=tuple(dict.fromkeys([*module.within, *before, *of_mpi])))
    if why_not:
        return replace(bare, why_not=why_not)
    version = externals.version_at(package, prefix) if package in externals.TOOLS else None
    spec = f"{package}@={installed or version or module.version}"
    if package == "cray-mpich":
        spec += "+wrappers" + _CRAY[bare.model].format(architecture)
    elif package == _INTEL_MPI:
        # Its mpicc, which older releases have too, calls the compiler that Spack names.
        spec += "+generic-names"
    library = External(package, spec, prefix, of_mpi)
    info = f"{prefix}/bin/ompi_info"
    aware = mpi == "cray-mpich" or "mpi_built_with_cuda_support:value:true" in (
        capture(info, "--parsable", "--level", "9", "--all") or "" if package == "openmpi" else ""
    )
    first, *others = (compiler, *stack) if compiler else stack
    return replace(bare, externals=(first, library, *others), gpu_aware=bool(gpu) and aware)
