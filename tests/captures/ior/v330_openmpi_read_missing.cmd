mpirun -n 2 ior -a POSIX -F -r -b 16m -t 1m -C -o data/f
