omp-stream --print-names
