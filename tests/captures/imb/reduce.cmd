mpiexec -n 2 -bind-to user:0,1 IMB-MPI1 Reduce -npmin 2
