timeout -s KILL 2 mpiexec -n 2 mdtest -n 100000 -u -F -w 32768 -d data/t
