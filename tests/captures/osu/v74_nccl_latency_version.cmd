mpiexec -n 2 osu_xccl_latency -m 1:64 -i 20 -x 2
