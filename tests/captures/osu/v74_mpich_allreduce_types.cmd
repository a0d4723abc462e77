mpiexec -n 2 osu_allreduce -T mpi_int,mpi_char -m 4:64
