mpirun -n 2 osu_bw_fan_out -m 4:64
