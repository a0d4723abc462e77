mpiexec -n 2 --bind-to none osu_mbw_mr -m 1:64 -d cuda D D
