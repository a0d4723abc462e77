mpiexec -n 2 osu_mbw_mr -m 65536 -c -b multiple -i 2 -x 0
