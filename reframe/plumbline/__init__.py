"""Plumbline: performance regression testing for HPC systems, on ReFrame and Spack."""
