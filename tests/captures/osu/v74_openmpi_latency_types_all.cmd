mpirun -n 2 osu_latency -T all -m 4:16
