mpirun --allow-run-as-root --oversubscribe -np 2 network_test
