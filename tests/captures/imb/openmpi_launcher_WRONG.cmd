mpirun --allow-run-as-root --oversubscribe -np 2 IMB-MPI1 PingPong -msglog 0:2
