mpiexec -n 2 osu_xccl_allreduce -h
