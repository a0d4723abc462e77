mpirun -n 2 osu_latency -c -m 4:64
