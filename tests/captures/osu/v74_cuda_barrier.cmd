mpiexec -n 2 --bind-to none osu_barrier -d cuda
