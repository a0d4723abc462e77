OMP_NUM_THREADS=2 OMP_PROC_BIND=true omp-stream --only Dot -s 1048576 -n 20
