mpiexec -n 2 osu_allreduce -T all -m 4:16
