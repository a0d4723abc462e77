"""Concretizes the active environment for nodes that are not this machine; under `spack python`.

Spack asks each compiler for its C library by running it. One that does not run here it would take
for a package like any other, and leave out its own compiler wrapper and runtime: the lock would say
less than the one that the machine itself makes, and could not be built from. So a compiler is taken
as given, like any other external, and the C library is the external `glibc` of the included files.
What is replaced is of the Spack that pins.yaml names.
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
