mpirun -n 4 osu_mbw_mr -p 2
