"""Comm|Scope, which Spack does not have.

Sources: upstream's README and CMake files at v0.12.0, and those of its libscope at 124999d.
https://github.com/c3sr/comm_scope/tree/v0.12.0, https://github.com/cwpearson/libscope
"""

import re
from pathlib import Path

from spack.package import (
    InstallError,
    conflicts,
    depends_on,
    install,
    join_path,
    license,
    mkdirp,
    run_after,
    variant,
    version,
)
from spack_repo.builtin.build_systems import cmake
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage


class CommScope(cmake.CMakePackage, CudaPackage, ROCmPackage):
    """Latency and bandwidth of CPU and GPU transfers within a node: Comm|Scope."""

    homepage = "https://github.com/c3sr/comm_scope"
    git = "https://github.com/c3sr/comm_scope.git"

    license("Apache-2.0")

    # The first release that builds without CUDA. Its submodules are libscope, and with that
    # Google Benchmark, spdlog and Lyra.
    version(
        "0.12.0",
        tag="v0.12.0",
        commit="d744349903b9b99869f3b3e45db0b2628ccc39dc",
        submodules=True,
    )

    variant("numa", default=True, description="Transfers by NUMA domain, with libnuma")
    variant("openmp", default=True, description="Host tests with threads")
    variant("nvtx", default=False, when="+cuda", description="Ranges for NVIDIA's profilers")

    cmake.generator("make")

    depends_on("c", type="build")  # spdlog's CMake project
    depends_on("cxx", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("numactl", when="+numa")

    conflicts("+cuda", when="+rocm", msg="one kind of GPU per build")
    conflicts("cuda_arch=none", when="+cuda", msg="a GPU build needs cuda_arch=")

    sanity_check_is_file = (join_path("bin", "comm_scope"),)


class CMakeBuilder(cmake.CMakeBuilder):
    # Not the small programs that change the CPU's clock.
    build_targets = ("comm_scope",)

    def setup_build_environment(self, env):
        # Upstream asks git for its commit; outside a clone that would be any repository above.
        env.set("GIT_CEILING_DIRECTORIES", self.stage.path)

    def cmake_args(self):
        spec = self.spec
        args = [
            self.define_from_variant("SCOPE_USE_CUDA", "cuda"),
            self.define_from_variant("SCOPE_USE_HIP", "rocm"),
            self.define_from_variant("SCOPE_USE_NUMA", "numa"),
            self.define_from_variant("SCOPE_USE_OPENMP", "openmp"),
            self.define("SCOPE_USE_NVTX", spec.satisfies("+nvtx")),
            # No download in a build: libnuma is a dependency.
            self.define("SCOPE_TRY_DOWNLOAD_NUMA", False),
            self.define("BENCHMARK_DOWNLOAD_DEPENDENCIES", False),
        ]
        if spec.satisfies("+cuda"):
            # Named, so that CMake stops where nvcc does not work; upstream would go on without.
            nvcc = join_path(spec["cuda"].prefix.bin, "nvcc")
            args.append(self.define("CMAKE_CUDA_COMPILER", nvcc))
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", spec.variants["cuda_arch"].value))
        if spec.satisfies("^cuda@13:"):
            # CMake tries the compilers with these flags before it knows where CUDA's headers are.
            header = join_path(self.pkg.package_dir, "before_cuda_13.h")
            flags = f"-I{spec['cuda'].prefix.include} -include {header}"
            args += [self.define(f"CMAKE_{name}_FLAGS", flags) for name in ("CXX", "CUDA")]
        if spec.satisfies("+rocm"):
            args.append(
                self.define("CMAKE_CXX_COMPILER", join_path(spec["hip"].prefix.bin, "hipcc"))
            )
            # For gfx90a upstream's own option builds with and without XNACK.
            targets = spec.variants["amdgpu_target"].value
            args.append(self.define("SCOPE_ARCH_MI250X", "gfx90a" in targets))
            flags = [f"--offload-arch={target}" for target in targets if target != "gfx90a"]
            if flags:
                args.append(self.define("CMAKE_CXX_FLAGS", " ".join(flags)))
        return args

    @run_after("cmake")
    def numa_is_found(self):
        # Without libnuma upstream's CMake goes on, and the tests by NUMA domain are not there.
        cache = Path(self.build_directory, "CMakeCache.txt").read_text(encoding="utf-8")
        missing = re.search(r"^NUMA_.*-NOTFOUND$", cache, re.MULTILINE)
        if self.spec.satisfies("+numa") and missing:
            raise InstallError("libnuma was not found in " + self.spec["numactl"].prefix)

    def install(self, pkg, spec, prefix):
        # Upstream's install rules are those of its submodules; it has none for the program.
        mkdirp(prefix.bin)
        install(join_path(self.build_directory, "comm_scope"), prefix.bin)
