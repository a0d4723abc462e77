mpirun -n 2 ior -a POSIX -F -w -r -b 512m -t 1m -C -D 1 -O stoneWallingWearOut=0 -o data/f
