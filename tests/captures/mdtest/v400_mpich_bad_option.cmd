mpiexec -n 2 mdtest --nosuchoption
