mpiexec -n 1 IMB-MPI1 PingPong -msglog 0:4
