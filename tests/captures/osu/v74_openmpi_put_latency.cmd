mpirun -n 2 osu_put_latency -m 4:64
