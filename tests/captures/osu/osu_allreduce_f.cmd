mpirun --allow-run-as-root --oversubscribe -np 2 osu_allreduce -f -m 4:4096
