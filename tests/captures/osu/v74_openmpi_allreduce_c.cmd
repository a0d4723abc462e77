mpirun -n 2 osu_allreduce -c -f -m 4:64
