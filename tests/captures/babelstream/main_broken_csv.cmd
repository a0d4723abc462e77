OMP_NUM_THREADS=2 omp-stream --csv -s 1048576 -n 20
