mpirun --allow-run-as-root --oversubscribe -np 1 osu_latency
