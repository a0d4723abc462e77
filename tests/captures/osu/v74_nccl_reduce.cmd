mpiexec -n 2 --bind-to none osu_xccl_reduce -m 8:65536 -i 5 -x 1
