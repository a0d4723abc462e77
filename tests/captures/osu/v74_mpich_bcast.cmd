mpiexec -n 2 osu_bcast -m 4:64
