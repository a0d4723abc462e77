mpiexec -n 2 osu_iallreduce -m 4:64 -d cuda
