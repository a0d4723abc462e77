mpiexec -n 2 osu_bibw -c -b multiple -i 2 -x 0 -m 64
