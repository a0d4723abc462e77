spack -e local/openmpi install --only-concrete --fail-fast
