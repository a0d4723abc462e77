omp-stream --list
