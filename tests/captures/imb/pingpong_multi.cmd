mpiexec -n 2 -bind-to user:0,1 IMB-MPI1 -multi 0 -npmin 2 PingPong -msglog 0:4
