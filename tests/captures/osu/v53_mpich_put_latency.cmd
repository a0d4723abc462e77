mpiexec -n 2 osu_put_latency -x 1 -i 5
