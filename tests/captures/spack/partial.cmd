spack -e local/openmpi install --only-concrete
