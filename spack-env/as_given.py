"""Concretize the active environment for nodes of another machine; run with `spack python`.

Spack runs each compiler to find its C library. A compiler that does not run here would count as a
plain package, without Spack's compiler wrapper and runtime: the lock would have less than the one
that the machine itself would create, and could not be built. So a compiler is used as given, like
any other external, and the C library is the external `glibc` of the included files. The replaced
functions are those of the version of Spack in pins.yaml.
"""

import spack.compilers.libraries as libraries
import spack.config
import spack.environment
import spack.solver.asp as asp
import spack.spec

(given,) = spack.config.get("packages:glibc:externals")
libc = spack.spec.Spec(given["spec"].replace("@", "@=", 1))
libc.external_path = given["prefix"]

asp.c_compiler_runs = lambda compiler: True
libraries.CompilerPropertyDetector.default_libc = lambda self: libc.copy()

environment = spack.environment.active_environment()
with environment.write_transaction():
    environment.concretize(force=True)
    environment.write()
