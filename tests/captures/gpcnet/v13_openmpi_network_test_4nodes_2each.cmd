mpirun -n 8 --mca mpi_yield_when_idle 1 fakenode 2 network_test
