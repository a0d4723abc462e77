mpirun -n 2 osu_cas_latency
