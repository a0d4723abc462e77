mpiexec -n 2 mdtest -n 20 -F -z 2 -b 3 -d data/t
