mpirun -n 2 osu_latency -T mpi_float -m 4:64
