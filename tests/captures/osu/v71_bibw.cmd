mpirun -np 2 osu_bibw
