mpiexec -n 2 osu_reduce_scatter -m 4:64
