mpiexec -n 2 -bind-to user:0,1 IMB-MPI1 Allgatherv -npmin 2
