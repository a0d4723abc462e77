mpirun --allow-run-as-root --oversubscribe -np 10 --mca mpi_yield_when_idle 1 fakenode.sh 1 network_load_test
