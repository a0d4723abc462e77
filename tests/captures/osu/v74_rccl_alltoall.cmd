mpiexec -n 4 osu_xccl_alltoall -m 1:1024 -i 20 -x 2
