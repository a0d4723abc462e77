mpirun -n 10 --mca mpi_yield_when_idle 1 fakenode 1 network_load_test
