mpiexec -n 2 ior -a MPIIO -w -r -b 16m -t 1m -C -e -o nosuch/f
