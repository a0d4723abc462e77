mpirun --allow-run-as-root --oversubscribe -np 2 osu_init
