omp-stream -s abc
