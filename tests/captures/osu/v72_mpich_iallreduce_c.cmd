mpiexec -n 2 osu_iallreduce -m 4096 -c -i 2 -x 0 -T mpi_int
