mpiexec -n 2 osu_barrier -f
