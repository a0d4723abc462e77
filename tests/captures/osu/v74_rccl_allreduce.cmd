mpiexec -n 4 osu_xccl_allreduce -m 4:1024 -i 20 -x 2
