mpiexec -n 2 osu_get_bw -m 1:64 -d cuda D D
