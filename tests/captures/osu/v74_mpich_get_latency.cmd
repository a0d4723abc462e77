mpiexec -n 2 osu_get_latency -m 4:64
