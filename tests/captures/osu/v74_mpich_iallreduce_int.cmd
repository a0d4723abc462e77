mpiexec -n 2 osu_iallreduce -c -T mpi_int -m 64
