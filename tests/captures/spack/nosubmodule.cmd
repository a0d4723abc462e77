spack -e local/openmpi mirror create --all -d mirror
