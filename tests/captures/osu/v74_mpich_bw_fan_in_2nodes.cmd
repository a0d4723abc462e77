mpiexec -n 2 fakenode 1 osu_bw_fan_in -m 4:64
