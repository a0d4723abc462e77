mpiexec -n 2 mdtest -n 10 -u -D -d data/t
