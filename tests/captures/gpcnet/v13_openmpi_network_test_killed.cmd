timeout -s KILL 8 mpirun -n 2 fakenode 1 network_test
