"""Onboarding of a machine, from a draft of its system file to its first baseline.

===============  ===============================================================
``software``     detects MPI, modules, and benchmarks on PATH
``node``         describes a node; run on a compute node
``draft``        drafts the system file
``steps``        lists what is missing and the next step, for `plumbline lint`
===============  ===============================================================
"""
