mpirun -n 2 osu_bibw -z -m 4:64
