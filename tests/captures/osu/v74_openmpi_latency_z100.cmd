mpirun -n 2 osu_latency -z100,5 -m 4:64
