mpirun -n 2 ior -a POSIX -F -w -k -b 1m -t 1m -o data/f >/dev/null; mpirun -n 2 ior -a POSIX -F -r -b 16m -t 1m -C -o data/f
