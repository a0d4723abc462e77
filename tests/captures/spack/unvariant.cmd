spack -e local/openmpi concretize --force
