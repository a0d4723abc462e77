mpiexec -n 2 osu_get_bw -x 1 -i 5
