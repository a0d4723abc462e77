mpirun --allow-run-as-root --oversubscribe -np 2 osu_latency -c -m 1:1024
