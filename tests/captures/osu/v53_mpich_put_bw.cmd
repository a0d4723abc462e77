mpiexec -n 2 osu_put_bw -x 1 -i 5
