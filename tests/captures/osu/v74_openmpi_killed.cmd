timeout -s KILL 2 mpirun -n 2 osu_latency -i 200000
