mpiexec -n 4 osu_xccl_allgather -m 1:4194304 -M 4194304 -i 5 -x 1
