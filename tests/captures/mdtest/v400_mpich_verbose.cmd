mpiexec -n 2 mdtest -n 10 -u -F -w 32768 -e 32768 -V 1 -i 2 -d data/t
