mpiexec -n 2 osu_latency -f -m 4:64
