timeout -s KILL 2 mpiexec -n 2 osu_latency -i 200000
