OMP_NUM_THREADS=2 omp-stream -s 33554432 -n 20 --csv
