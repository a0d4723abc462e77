mpirun -n 2 mdtest -n 10 -u -d data/t
