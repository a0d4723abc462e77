mpiexec -n 2 osu_xccl_bw -m 1:1024 -i 20
