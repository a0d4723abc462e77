timeout -s KILL 8 mpiexec -n 2 fakenode 1 network_test
