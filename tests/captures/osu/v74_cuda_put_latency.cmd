mpiexec -n 2 --bind-to none osu_put_latency -m 1:64 -d cuda D D
