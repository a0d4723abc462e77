mpiexec -n 2 osu_latency -c -m 1:64 -d cuda D D
