mpiexec -n 2 osu_mbw_mr -m 1:64 -d cuda D D
