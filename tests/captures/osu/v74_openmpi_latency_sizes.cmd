mpirun -n 2 osu_latency -m 3:100
