mpiexec -n 2 --bind-to none osu_multi_lat -m 1:64 -d cuda D D
