mpiexec -n 4 osu_xccl_reduce_scatter -m 4:64 -i 20 -x 2
