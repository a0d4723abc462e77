mpirun -n 2 osu_acc_latency -m 4:64
