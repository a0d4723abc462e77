mpiexec -n 2 -bind-to user:0,1 IMB-MPI1 PingPong Allreduce Barrier -npmin 2 -msglog 3:8
