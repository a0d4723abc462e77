mpiexec -n 2 --bind-to none osu_bibw -m 1:4194304 -d cuda D D
