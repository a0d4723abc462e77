mpiexec -n 3 osu_xccl_latency -m 1:64
