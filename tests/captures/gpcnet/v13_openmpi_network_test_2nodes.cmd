mpirun -n 2 fakenode 1 network_test
