mpirun -n 2 ior -a POSIX -F -w -r -b 16m -t 1m -C -e -O summaryFormat=JSON -o nosuch/f
