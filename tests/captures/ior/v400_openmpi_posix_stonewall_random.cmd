mpirun -n 2 ior -a POSIX -w -z -b 512m -t 4k -D 1 -o data/f
