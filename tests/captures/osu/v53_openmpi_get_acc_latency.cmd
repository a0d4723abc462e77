mpirun -n 2 osu_get_acc_latency -x 1 -i 5
