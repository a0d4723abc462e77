mpiexec -n 2 osu_allgather -m 4:64
