mpirun -n 2 osu_iallgather -m 4:64
