mpirun -n 3 osu_latency -m 4:64
