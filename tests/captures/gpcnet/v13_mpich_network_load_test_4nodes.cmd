mpiexec -n 4 fakenode 1 network_load_test
