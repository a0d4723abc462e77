mpirun -n 2 osu_gather -m 4:64
