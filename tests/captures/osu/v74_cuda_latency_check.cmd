mpiexec -n 2 osu_latency -m 4194304 -d cuda D D
