"""OSU Micro-Benchmarks that can send from GPU memory with Cray's MPI."""

from spack_repo.builtin.packages.osu_micro_benchmarks.package import (
    OsuMicroBenchmarks as BuiltinOsuMicroBenchmarks,
)


class OsuMicroBenchmarks(BuiltinOsuMicroBenchmarks):
    __doc__ = BuiltinOsuMicroBenchmarks.__doc__

    def flag_handler(self, name, flags):
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
