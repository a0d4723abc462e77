mpiexec -n 2 osu_xccl_bw -m 1:65536 -i 20
