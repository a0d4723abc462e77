mpirun -n 2 osu_ibcast -m 4:64
