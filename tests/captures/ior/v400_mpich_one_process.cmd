mpiexec -n 1 ior -a POSIX -F -w -r -b 16m -t 1m -e -o data/f
