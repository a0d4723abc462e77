mpirun -n 9 fakenode 1 network_load_test
