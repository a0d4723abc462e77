mpirun -n 2 ior --nosuchoption
