mpiexec -n 1 IMB-MPI1 Allreduce -npmin 2 -msglog 0:4
