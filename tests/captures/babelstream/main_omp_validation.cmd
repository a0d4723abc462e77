OMP_NUM_THREADS=2 omp-stream -s 1024 -n 30000
