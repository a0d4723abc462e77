mpiexec -n 10 fakenode 1 network_load_test
