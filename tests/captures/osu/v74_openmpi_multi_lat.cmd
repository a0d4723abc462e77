mpirun -n 2 osu_multi_lat -m 4:64
