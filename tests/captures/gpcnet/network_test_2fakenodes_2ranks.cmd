mpirun --allow-run-as-root --oversubscribe -np 2 fakenode.sh 1 network_test
