mpirun -n 2 network_load_test
