mpirun -n 2 osu_multi_lat
