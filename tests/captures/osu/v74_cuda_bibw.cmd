mpiexec -n 2 osu_bibw -m 1:1024 -d cuda D D
