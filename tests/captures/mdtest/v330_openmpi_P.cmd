mpirun -n 2 mdtest -n 10 -u -F -w 32768 -e 32768 -P -d data/t
