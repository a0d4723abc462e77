mpiexec -n 2 --bind-to none osu_xccl_latency -m 8:64
