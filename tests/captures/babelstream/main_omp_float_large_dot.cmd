OMP_NUM_THREADS=2 omp-stream --float -s 67108864 -n 2
