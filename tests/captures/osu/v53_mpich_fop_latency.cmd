mpiexec -n 2 osu_fop_latency
