mpirun -n 2 osu_latency -m 1048576:1048576
