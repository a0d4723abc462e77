mpirun -n 2 ior -a MPIIO -c -w -r -b 16m -t 1m -C -o data/f
