mpiexec -n 2 osu_barrier -d cuda
