spack -e testbed/disk-io concretize --force
