mpiexec -n 3 osu_latency
