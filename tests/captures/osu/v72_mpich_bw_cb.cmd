mpiexec -n 2 osu_bw -m 65536 -c -b multiple -i 2 -x 0
