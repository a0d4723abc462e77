mpiexec -n 2 ior -a POSIX -b 1m -t 3k -o data/f
