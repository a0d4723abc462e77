mpirun -n 2 osu_bw -W 16 -m 4:64
