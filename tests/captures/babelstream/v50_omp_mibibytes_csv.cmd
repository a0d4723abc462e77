OMP_NUM_THREADS=2 OMP_PROC_BIND=true omp-stream --mibibytes --csv -s 1048576 -n 20
