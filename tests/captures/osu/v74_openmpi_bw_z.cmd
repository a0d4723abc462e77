mpirun -n 2 osu_bw -z -m 4:64
