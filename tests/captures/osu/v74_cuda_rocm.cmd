mpiexec -n 2 --bind-to none osu_latency -m 1:64 -d rocm D D
