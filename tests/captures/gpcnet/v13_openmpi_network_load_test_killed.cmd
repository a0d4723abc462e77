timeout -s KILL 20 mpirun -n 10 fakenode 1 network_load_test
