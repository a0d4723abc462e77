ulimit -v 200000; OMP_NUM_THREADS=2 omp-stream
