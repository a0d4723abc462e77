mpirun -n 2 ior -a NOSUCH -o data/f
