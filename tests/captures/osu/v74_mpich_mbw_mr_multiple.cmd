mpiexec -n 2 osu_mbw_mr -c -b multiple -i 2 -x 0 -m 64
