mpiexec -n 2 --bind-to none osu_xccl_allreduce -c -m 8:64 -i 5 -x 1
