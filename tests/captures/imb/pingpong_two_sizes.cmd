mpirun -np 2 IMB-MPI1 PingPong -npmin 2 -msglen sizes -iter 400,8    (between two nodes, on a fabric of 100 Mbit/s)
