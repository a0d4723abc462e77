mpiexec -n 2 ior -a POSIX -F -w -r -b 16m -t 1m -C -e -i 3 -O summaryFormat=JSON -o data/f
