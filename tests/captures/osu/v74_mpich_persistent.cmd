mpiexec -n 2 osu_latency_persistent -m 4:64
