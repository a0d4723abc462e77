mpiexec -n 1 osu_allreduce -m 4:64
