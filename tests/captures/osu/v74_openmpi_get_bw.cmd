mpirun -n 2 osu_get_bw -m 4:64
