mpiexec -n 2 osu_bw -m 4:64
