mpiexec -n 2 osu_xccl_bw -v
