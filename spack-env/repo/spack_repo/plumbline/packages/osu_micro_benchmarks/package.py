"""OSU Micro-Benchmarks that can send from GPU memory with Cray's MPI, that link on a login node
without NVIDIA's driver, and with the programs over NCCL or RCCL if they are wanted."""

from spack.package import depends_on, filter_file, variant, when
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.packages.osu_micro_benchmarks.package import (
    OsuMicroBenchmarks as BuiltinOsuMicroBenchmarks,
)


class OsuMicroBenchmarks(BuiltinOsuMicroBenchmarks):
    __doc__ = BuiltinOsuMicroBenchmarks.__doc__

    # Spack's own recipe has this variant since March 2026 (spack-packages v2026.03.0), there on by
    # default. OSU links all of its programs with the library, so those of MPI are built without.
    for _model in ("+cuda", "+rocm"):
        variant("xccl", default=False, when=_model, description="Build osu_xccl_* (NCCL or RCCL)")
    depends_on("nccl", when="+cuda+xccl")
    for _arch in CudaPackage.cuda_arch_values:
        depends_on(f"nccl cuda_arch={_arch}", when=f"+cuda+xccl cuda_arch={_arch}")
    depends_on("rccl", when="+rocm+xccl")

    @when("@:7.4 ^cuda@13:")
    def patch(self):
        # CUDA 13 takes a struct for the place of memory.
        kind = "devid == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice"
        filter_file(
            "cudaMemPrefetchAsync(buf, length, devid, um_stream)",
            f"cudaMemPrefetchAsync(buf, length, (struct cudaMemLocation){{{kind}, devid}}, 0, "
            "um_stream)",
            "c/util/osu_util_mpi.c",
            string=True,
        )

    def configure_args(self):
        args = super().configure_args()
        if self.spec.satisfies("+cuda+xccl"):
            args += ["--enable-ncclomb", f"--with-nccl={self.spec['nccl'].prefix}"]
        if self.spec.satisfies("+rocm+xccl"):
            # OSU names the library before its objects, where a linker may drop it as not needed.
            args += ["--enable-rcclomb", f"--with-rccl={self.spec['rccl'].prefix}", "LIBS=-lrccl"]
        return args

    def flag_handler(self, name, flags):
        # OSU includes <rccl.h>, which ROCm has in a folder of its own since 5.2.
        if name == "cppflags" and self.spec.satisfies("+rocm+xccl"):
            flags = [*flags, f"-I{self.spec['rccl'].prefix.include.rccl}"]
        # libcuda comes with the driver, which login nodes often lack; the toolkit has a stub of it
        # to link with. Spack's own recipe has named it in LIBRARY_PATH since May 2026
        # (spack-packages, pull request 4340), which is GCC's: not every compiler reads it.
        if name == "ldflags" and self.spec.satisfies("+cuda"):
            flags = [*flags, f"-L{self.spec['cuda'].prefix.lib64.stubs}"]
        # Cray MPICH reaches GPU memory through a library that a program must be linked with, though
        # it calls nothing of it. Through Spack's wrapper, since the recipe sets LDFLAGS itself.
        mpi = self.spec["mpi"]
        if mpi.name == "cray-mpich" and (
            self.spec.satisfies("+cuda") or self.spec.satisfies("+rocm")
        ):
            library = mpi.package.gtl_lib.get(name, [])
            if name == "ldlibs" and library:
                library = ["-Wl,--no-as-needed", *library]
            flags = [*flags, *library]
        return flags, None, None
