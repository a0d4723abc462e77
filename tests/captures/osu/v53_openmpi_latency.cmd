mpirun -n 2 osu_latency -x 1 -i 5
