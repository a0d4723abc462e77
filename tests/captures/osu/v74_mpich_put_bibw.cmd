mpiexec -n 2 osu_put_bibw -m 4:64
