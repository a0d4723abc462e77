mpiexec -n 2 osu_alltoall -m 4:64
