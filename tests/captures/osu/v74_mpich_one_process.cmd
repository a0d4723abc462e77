mpiexec -n 1 osu_latency -m 4:64
