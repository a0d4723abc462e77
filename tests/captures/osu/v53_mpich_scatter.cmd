mpiexec -n 2 osu_scatter -m 4:64
