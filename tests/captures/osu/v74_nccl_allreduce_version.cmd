mpiexec -n 2 osu_xccl_allreduce -m 4:64 -i 20 -x 2
