mpiexec -n 4 osu_xccl_bcast -m 1:65536 -M 1073741824 -i 20 -x 2
