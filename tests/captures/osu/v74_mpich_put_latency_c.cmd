mpiexec -n 2 osu_put_latency -c -m 4:64
