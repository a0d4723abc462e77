mpiexec -n 2 osu_multi_lat
