"""OSU Micro-Benchmarks that can send from GPU memory with Cray's MPI, and that link on a login node
without NVIDIA's driver."""

from spack_repo.builtin.packages.osu_micro_benchmarks.package import (
    OsuMicroBenchmarks as BuiltinOsuMicroBenchmarks,
)


class OsuMicroBenchmarks(BuiltinOsuMicroBenchmarks):
    __doc__ = BuiltinOsuMicroBenchmarks.__doc__

    def flag_handler(self, name, flags):
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
