mpirun -n 2 osu_allreduce -m 4:64
