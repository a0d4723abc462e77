mpiexec -n 2 --bind-to none osu_allreduce -m 4:64 -T mpi_float -d cuda
