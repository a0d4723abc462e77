mpiexec -n 2 osu_allreduce -f -m 4:64
