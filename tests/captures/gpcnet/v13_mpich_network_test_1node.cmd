mpiexec -n 2 network_test
