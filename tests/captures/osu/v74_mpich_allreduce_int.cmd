mpiexec -n 2 osu_allreduce -c -T mpi_int -m 64
