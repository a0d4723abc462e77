timeout 4 mpiexec -n 4 IMB-MPI1 Allreduce -npmin 4 -time 100 -msglog 0:4
