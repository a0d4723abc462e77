mpiexec -n 1 osu_latency
