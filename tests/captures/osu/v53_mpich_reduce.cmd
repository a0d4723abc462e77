mpiexec -n 2 osu_reduce -m 4:64
