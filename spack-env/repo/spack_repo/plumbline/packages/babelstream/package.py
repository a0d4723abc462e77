"""BabelStream with the model serial, and built for the environment's target."""

from spack.package import conflicts, filter_file, variant, version
from spack_repo.builtin.packages.babelstream import package as builtin


class Babelstream(builtin.Babelstream):
    __doc__ = builtin.Babelstream.__doc__

    # The model serial came after 5.0, and of the tags since only v6.0-rc has it, which does not
    # compile. This is the first commit that does, dated so; it prints version 5.0.
    version("2026-04-10", commit="57637d572532fc028b6c0964944f1afc27ff5436")

    variant("serial", default=False, description="Enable the serial model")
    conflicts("+serial", when="@:5.0", msg="the serial model came after BabelStream 5.0")
    for model in ("omp", "cuda", "rocm", "hip"):
        conflicts("+serial", when=f"+{model}", msg="one model per build")

    def patch(self):
        # nvcc knows the option from 10.2 on (CMake asks for 10.2.89 before it uses it), and nothing
        # that it would forward is given here.
        if self.spec.satisfies("+cuda ^cuda@:10.1"):
            filter_file(
                '"-forward-unknown-to-host-compiler"', "", "src/cuda/model.cmake", string=True
            )


class CMakeBuilder(builtin.CMakeBuilder):
    def cmake_args(self):
        args = ["-DMODEL=serial"] if "+serial" in self.spec else super().cmake_args()
        # Upstream's default is -O3 -march=native, the machine that builds. Spack's compiler
        # wrappers give the environment's target.
        args.append("-DRELEASE_FLAGS=-O3")
        return args
