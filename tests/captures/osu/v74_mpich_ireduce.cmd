mpiexec -n 2 osu_ireduce -m 4:64
