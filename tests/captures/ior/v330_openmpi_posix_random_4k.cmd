mpirun -n 2 ior -a POSIX -F -w -r -z -b 1m -t 4k -C -e -o data/f
