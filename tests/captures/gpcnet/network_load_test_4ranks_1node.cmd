mpirun --allow-run-as-root --oversubscribe -np 4 network_load_test
