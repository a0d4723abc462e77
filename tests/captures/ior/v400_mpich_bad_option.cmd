mpiexec -n 2 ior --nosuchoption
