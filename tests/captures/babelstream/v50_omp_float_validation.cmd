OMP_NUM_THREADS=2 omp-stream --float -s 1024 -n 30000
