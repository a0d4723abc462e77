mpiexec -n 2 osu_xccl_bw -m 4:64
