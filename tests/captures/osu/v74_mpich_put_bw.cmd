mpiexec -n 2 osu_put_bw -m 4:64
