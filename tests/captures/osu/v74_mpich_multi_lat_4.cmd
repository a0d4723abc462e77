mpiexec -n 4 osu_multi_lat -x 1 -i 5 -m 4:64
