mpiexec -n 2 osu_neighbor_alltoall -m 4:64
