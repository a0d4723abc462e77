mpiexec -n 4 osu_allreduce -x 1 -i 5 -f -m 4:64
