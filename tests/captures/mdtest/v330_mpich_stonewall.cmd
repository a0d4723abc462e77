mpiexec -n 2 mdtest -n 1000000 -u -F -W 1 -C -d data/t
