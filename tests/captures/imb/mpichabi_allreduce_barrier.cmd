mpirun.mpich -np 2 IMB-MPI1 Allreduce Barrier
