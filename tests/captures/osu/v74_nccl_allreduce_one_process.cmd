mpiexec -n 1 osu_xccl_allreduce -m 4:64
