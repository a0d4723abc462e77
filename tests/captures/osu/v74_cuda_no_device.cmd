CUDA_VISIBLE_DEVICES= mpiexec -n 2 --bind-to none osu_latency -m 1:64 -d cuda D D
