mpiexec -n 2 IMB-MPI1 PingPong -npmin 2 -msglog 0:10 -time 5.0
