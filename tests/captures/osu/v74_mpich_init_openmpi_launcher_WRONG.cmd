mpirun -n 2 osu_init
