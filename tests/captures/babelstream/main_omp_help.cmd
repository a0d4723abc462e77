omp-stream --help
