mpirun -n 2 osu_bw -c -m 4:64
