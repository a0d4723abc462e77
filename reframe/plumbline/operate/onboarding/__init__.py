"""Onboarding a machine: a first draft of its system file from what a login node tells, and what is
open from there to the first baseline.

===============  ===============================================================
``software``     MPI, modules, benchmarks on PATH
``node``         what a node is like inside; run on a compute node
``draft``        from what was probed to the system file
``steps``        what is open, and what comes next; for `plumbline lint`
===============  ===============================================================
"""
