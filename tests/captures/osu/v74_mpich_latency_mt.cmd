mpiexec -n 2 osu_latency_mt -m 4:64
