mpiexec -n 2 osu_allreduce -z -f -m 4:64
