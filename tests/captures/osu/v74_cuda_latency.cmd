mpiexec -n 2 osu_latency -d cuda -m 1:1024 D D
