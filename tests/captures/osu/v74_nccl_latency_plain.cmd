mpiexec -n 2 osu_xccl_latency -m 64 -i 100
