mpiexec -n 2 osu_ialltoall -m 4:64
