mpirun -n 2 osu_put_bw -z -m 4:64
