mpiexec -n 2 osu_latency -m 4:64
