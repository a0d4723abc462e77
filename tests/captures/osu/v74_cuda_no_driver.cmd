mpiexec -n 2 osu_latency -m 1:64 -d cuda D D
