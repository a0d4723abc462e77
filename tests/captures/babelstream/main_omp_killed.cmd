OMP_NUM_THREADS=2 timeout -s KILL 1 omp-stream -n 5000
