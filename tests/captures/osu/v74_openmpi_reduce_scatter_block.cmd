mpirun -n 2 osu_reduce_scatter_block -m 4:64
