mpiexec -n 2 osu_xccl_latency -m 1:16 -i 20 -c
