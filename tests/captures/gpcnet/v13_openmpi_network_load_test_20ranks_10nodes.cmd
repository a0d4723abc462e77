mpirun -n 20 --mca mpi_yield_when_idle 1 fakenode 2 network_load_test
