"""What the recipes make of a spec, as JSON on standard output: for `spack python`, which
test_recipes.py calls. The specs are put together here, so that nothing waits for the solver."""

import json
import sys
from pathlib import Path

import spack.builder
import spack.deptypes
from spack.spec import Spec, substitute_abstract_variants
from spack.util.environment import EnvironmentModifications

COMM_SCOPE = "comm-scope@=0.12.0 build_system=cmake build_type=Release generator=make"
BABELSTREAM = (
    "babelstream@=5.0 languages=cxx build_system=cmake build_type=Release generator=make"
    " ~acc~kokkos~ocl~raja~std~sycl~sycl2020~tbb~thrust cuda_extra_flags=none dir=none"
)
FOLDERS = {"cuda": "/site/cuda", "hip": "/site/rocm", "cmake": "/usr", "numactl": "/usr"}

#: Name -> the spec, whose CMake arguments are told.
BUILDS = {
    "comm-scope host": f"{COMM_SCOPE} +numa+openmp~cuda~rocm",
    "comm-scope bare": f"{COMM_SCOPE} ~numa~openmp~cuda~rocm",
    "comm-scope cuda": f"{COMM_SCOPE} +numa+openmp+cuda~rocm+nvtx cuda_arch=70",
    "comm-scope cuda 13": f"{COMM_SCOPE} +numa+openmp+cuda~rocm~nvtx cuda_arch=90 ^cuda@=13.0.88",
    "comm-scope gfx90a": f"{COMM_SCOPE} +numa+openmp~cuda+rocm amdgpu_target=gfx90a",
    "comm-scope gfx908": f"{COMM_SCOPE} +numa+openmp~cuda+rocm amdgpu_target=gfx908",
    "babelstream omp": f"{BABELSTREAM} +omp~omp_offload omp_flags=none ~cuda~hip~rocm~serial",
    "babelstream cuda": f"{BABELSTREAM} ~omp+cuda~hip~rocm~serial cuda_arch=70"
    " cuda_memory_mode=default",
    "babelstream hip": f"{BABELSTREAM} ~omp~cuda+hip+rocm~serial amdgpu_target=gfx90a"
    " hip_mem_mode=default",
    "babelstream serial": BABELSTREAM.replace("=5.0", "=2026-04-10") + " ~omp~cuda~hip~rocm+serial",
}

#: MPI -> names of wrappers in the folder below the prefix, and the dependents' compiler.
WRAPPERS = {
    "mpich of Debian": ("mpich@=4.0.2", "bin", ["mpicc", "mpicc.mpich", "mpif90.mpich"], "gcc"),
    "mpich": ("mpich@=4.0.2", "bin", ["mpicc"], "gcc"),
    "openmpi of Debian": ("openmpi@=4.1.4", "bin", ["mpicc", "mpicc.openmpi"], "gcc"),
    "openmpi": ("openmpi@=4.1.4", "bin", ["mpicc"], "gcc"),
    "intel-mpi, its compiler": (
        *("intel-mpi@=2019.0.117", "intel64/bin", ["mpicc", "mpiicc"]),
        "intel-oneapi-compilers-classic",
    ),
    "intel-mpi, gcc": ("intel-mpi@=5.1.3", "bin64", ["mpicc", "mpiicc"], "gcc"),
}


def concrete(text, prefix=None, **dependencies):
    """A spec as the solver would leave it, as far as recipes look; dependencies are externals."""
    spec = Spec(text)
    spec.external_path = prefix
    for name, (folder, virtuals) in dependencies.items():
        dependency = Spec(name)
        dependency.external_path = folder
        spec._add_dependency(dependency, depflag=spack.deptypes.BUILD, virtuals=virtuals)
    for node in spec.traverse():
        substitute_abstract_variants(node)
    spec._mark_concrete()
    return spec


def cmake_args(text):
    root, _, cuda = text.partition(" ^")
    spec = concrete(
        root,
        gcc=("/usr", ("c", "cxx")),
        **{cuda if cuda and name == "cuda" else name: (folder, ())
           for name, folder in FOLDERS.items()},
    )  # fmt: skip
    package = spec.package
    for cls in type(package).__mro__:
        # As Spack does before it builds.
        module = sys.modules.get(cls.__module__)
        if module and cls.__module__.startswith("spack_repo"):
            module.spack_cc, module.spack_cxx = "spack-cc", "spack-c++"
    return spack.builder.create(package).cmake_args()


def linker_flags(variants):
    """What the compiler's wrapper adds to each link of OSU."""
    spec = concrete(
        f"osu-micro-benchmarks@=7.4 ~graphing~papi {variants}",
        openmpi=("/usr", ("mpi",)),
        cuda=(FOLDERS["cuda"], ()),
    )
    injected, _, _ = spec.package.flag_handler("ldflags", [])
    return injected


def wrappers(mpi, folder, names, compiler, prefix):
    (prefix / folder).mkdir(parents=True)
    for name in names:
        (prefix / folder / name).touch()
    spec = concrete(mpi, str(prefix))
    dependent = concrete("gpcnet@=1.3", **{compiler: ("/usr", ("c",))})
    spec.package.setup_dependent_package(None, dependent)
    run = EnvironmentModifications()
    spec.package.setup_run_environment(run)
    variables = {}
    run.apply_modifications(variables)
    return {
        "mpicc": Path(spec.mpicc).relative_to(prefix).as_posix(),
        "mpifc": Path(spec.mpifc).relative_to(prefix).as_posix(),
        "MPICC": variables.get("MPICC", "").replace(f"{prefix}/", ""),
    }


scratch = Path(sys.argv[1])
print("::facts::")  # the recipes print too
facts = {
    "cmake": {name: cmake_args(text) for name, text in BUILDS.items()},
    "osu": {name: linker_flags(name) for name in ("~cuda~rocm", "+cuda~rocm cuda_arch=70")},
    "wrappers": {
        name: wrappers(*values, scratch / name.replace(" ", "-"))
        for name, values in WRAPPERS.items()
    },
}
print("::facts::" + json.dumps(facts))
