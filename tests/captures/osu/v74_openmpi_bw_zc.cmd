mpirun -n 2 osu_bw -z100,5 -c -m 4:64
