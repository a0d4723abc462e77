spack -e perlmutter/cray-mpich mirror create --all -d mirror
