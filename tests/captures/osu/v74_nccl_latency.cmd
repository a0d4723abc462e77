mpiexec -n 2 osu_xccl_latency -m 1:1024
