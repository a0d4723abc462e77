mpiexec -n 4 osu_xccl_reduce_scatter -m 4:65536 -M 1073741824 -i 20 -x 2
