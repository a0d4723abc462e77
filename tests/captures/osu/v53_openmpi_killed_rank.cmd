mpirun -n 1 prlimit --cpu=2 osu_bw -i 100000 : -n 1 osu_bw -i 100000
