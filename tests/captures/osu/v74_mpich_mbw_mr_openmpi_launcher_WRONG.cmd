mpirun -n 2 osu_mbw_mr -m 4:64
