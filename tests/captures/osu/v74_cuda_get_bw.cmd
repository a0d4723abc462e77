mpiexec -n 2 --bind-to none osu_get_bw -m 1:64 -d cuda D D
