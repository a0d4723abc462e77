OMP_NUM_THREADS=2 OMP_PROC_BIND=true omp-stream --triad-only --csv -s 1048576 -n 20
