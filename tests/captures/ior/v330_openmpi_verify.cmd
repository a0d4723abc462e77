mpirun -n 2 ior -a POSIX -F -w -W -r -R -b 16m -t 1m -C -e -o data/f
