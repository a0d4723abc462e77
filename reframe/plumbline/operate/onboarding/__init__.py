"""Onboarding of a machine, from a draft of its files to its first baseline.

===============  ===============================================================
``queues``       asks the batch system: Slurm, PBS, LSF, Flux
``node``         describes a node; run on a compute node
``probing``      runs it in a job
``modules``      lists modules, and what each does
``toolchains``   finds MPI, compiler, CUDA and ROCm among the modules
``software``     detects MPI and benchmarks on PATH
``manifest``     drafts the Spack environments
``draft``        drafts the system file
``steps``        lists what is missing and the next step, for `plumbline lint`
===============  ===============================================================
"""
