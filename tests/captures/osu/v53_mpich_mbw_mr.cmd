mpiexec -n 2 osu_mbw_mr
