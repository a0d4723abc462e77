"""Intel MPI before oneAPI, which Spack no longer has. Only as an external."""

from pathlib import Path

from spack.package import InstallError, provides, version
from spack_repo.builtin.build_systems.generic import Package

# mpiicc stands for Intel's compilers, mpicc for all others. Both call what I_MPI_CC names, as in
# Spack's recipe of the releases since, intel-oneapi-mpi; that 5.1.3 and 2019.0.117 do so too is to
# be confirmed on the machine.
INTEL = ("intel-oneapi-compilers-classic", "intel-oneapi-compilers")
WRAPPERS = {
    "mpicc": ("mpiicc", "mpicc"),
    "mpicxx": ("mpiicpc", "mpicxx"),
    "mpif77": ("mpiifort", "mpif77"),
    "mpifc": ("mpiifort", "mpif90"),
}


class IntelMpi(Package):
    """Intel MPI Library of the releases before oneAPI (2021), installed by the site."""

    homepage = "https://www.intel.com/content/www/us/en/developer/tools/oneapi/mpi-library.html"
    has_code = False

    version("2019.0.117")
    version("5.1.3")

    provides("mpi@:3.1")

    def install(self, spec, prefix):
        raise InstallError("intel-mpi cannot be built: name the site's own in externals.yaml")

    def wrapper(self, attribute, dependent_spec):
        intel = any(dependent_spec.satisfies(f"%{name}") for name in INTEL)
        name = WRAPPERS[attribute][0 if intel else 1]
        # The prefix may be the version's folder or the one that has bin: to be confirmed likewise.
        paths = [Path(self.prefix, folder, name) for folder in ("intel64/bin", "bin64", "bin")]
        return str(next(filter(Path.exists, paths), paths[0]))

    def setup_dependent_package(self, module, dependent_spec):
        for attribute in WRAPPERS:
            setattr(self.spec, attribute, self.wrapper(attribute, dependent_spec))

    def setup_dependent_build_environment(self, env, dependent_spec):
        module = dependent_spec.package.module
        env.set("I_MPI_ROOT", self.prefix)
        for variable, compiler in {
            "I_MPI_CC": "spack_cc",
            "I_MPI_CXX": "spack_cxx",
            "I_MPI_F77": "spack_f77",
            "I_MPI_F90": "spack_fc",
            "I_MPI_FC": "spack_fc",
        }.items():
            if hasattr(module, compiler):
                env.set(variable, getattr(module, compiler))
        for variable, attribute in {
            "MPICC": "mpicc",
            "MPICXX": "mpicxx",
            "MPIF77": "mpif77",
            "MPIF90": "mpifc",
        }.items():
            env.set(variable, self.wrapper(attribute, dependent_spec))
