mpirun -n 4 osu_mbw_mr -x 1 -i 5 -m 4:64
