mpirun -n 2 mdtest --nosuchoption
