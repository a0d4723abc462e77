mpirun -n 1 osu_latency
