omp-stream -n 1
