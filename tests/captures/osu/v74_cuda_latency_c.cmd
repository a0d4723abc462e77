mpiexec -n 2 osu_latency -c -m 1:1024 -d cuda D D
