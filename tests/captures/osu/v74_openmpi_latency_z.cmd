mpirun -n 2 osu_latency -z -m 4:64
