mpiexec -n 2 ior -a POSIX -F -w -r -b 16m -t 1m -C -e -v -o data/f
