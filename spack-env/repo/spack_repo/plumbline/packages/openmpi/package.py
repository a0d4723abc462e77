"""Open MPI with the compiler wrappers that bear its name, as Debian has them."""

from spack_repo.builtin.packages.openmpi.package import Openmpi as BuiltinOpenmpi
from spack_repo.plumbline import debian


class Openmpi(BuiltinOpenmpi):
    __doc__ = BuiltinOpenmpi.__doc__

    def setup_dependent_package(self, module, dependent_spec):
        super().setup_dependent_package(module, dependent_spec)
        debian.to_dependents(self)

    def setup_run_environment(self, env):
        super().setup_run_environment(env)
        debian.to_environment(self, env)
