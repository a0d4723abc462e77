mpiexec -n 2 --bind-to none osu_latency -c -m 1:4194304 -i 10 -x 1 -d cuda D D
