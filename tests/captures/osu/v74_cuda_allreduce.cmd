mpiexec -n 2 osu_allreduce -m 4:64 -T mpi_float -d cuda
