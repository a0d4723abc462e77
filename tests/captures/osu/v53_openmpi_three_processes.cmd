mpirun -n 3 osu_latency
