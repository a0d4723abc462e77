mpiexec -n 2 mdtest -n 10 -u -F -w 32768 -e 32768 -d data/t
