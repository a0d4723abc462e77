"""mpiGraph at a fixed commit, built with the environment's MPI."""

from spack.package import depends_on, install, mkdirp, version
from spack_repo.builtin.packages.mpigraph.package import Mpigraph as BuiltinMpigraph


class Mpigraph(BuiltinMpigraph):
    __doc__ = BuiltinMpigraph.__doc__

    # Upstream has no release; 0.0.1 is the name that Spack gave.
    version("0.0.1", commit="5f6cbd9883f0204cc65ee5205f35518eab704ba7")

    # Without it the MPI's wrapper does not call Spack's.
    depends_on("c", type="build")

    def install(self, spec, prefix):
        # Upstream's makefile takes the mpicc that is first on PATH. Its command is make's own rule.
        spec["gmake"].command("mpiGraph", f"CC={spec['mpi'].mpicc}")
        mkdirp(prefix.bin)
        install("mpiGraph", prefix.bin)
