mpiexec -n 2 osu_acc_latency -x 1 -i 5
