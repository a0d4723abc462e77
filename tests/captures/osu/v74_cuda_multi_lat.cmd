mpiexec -n 2 osu_multi_lat -m 1:64 -d cuda D D
