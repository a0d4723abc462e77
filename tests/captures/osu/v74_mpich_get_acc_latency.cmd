mpiexec -n 2 osu_get_acc_latency -m 4:64
