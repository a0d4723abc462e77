mpirun -n 2 osu_ibcast -f -m 4:64
