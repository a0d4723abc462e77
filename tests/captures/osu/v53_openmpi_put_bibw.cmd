mpirun -n 2 osu_put_bibw -x 1 -i 5
