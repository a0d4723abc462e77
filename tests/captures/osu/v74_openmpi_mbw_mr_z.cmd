mpirun -n 2 osu_mbw_mr -z -m 4:64
