mpiexec -n 2 osu_bw -m 1:1024 -d cuda D D
