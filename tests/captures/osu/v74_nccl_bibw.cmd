mpiexec -n 2 osu_xccl_bibw -m 1:65536 -i 20
