mpiexec -n 4 osu_xccl_alltoall -m 1:65536 -M 1073741824 -i 20 -x 2
