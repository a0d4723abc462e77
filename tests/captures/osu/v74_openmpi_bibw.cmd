mpirun -n 2 osu_bibw -m 4:64
