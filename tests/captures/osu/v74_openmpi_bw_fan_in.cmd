mpirun -n 2 osu_bw_fan_in -m 4:64
