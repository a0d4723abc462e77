mpiexec -n 4 IMB-MPI1 Allreduce -iter 50 -msglog 0:4
