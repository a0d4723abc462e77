mpiexec -n 2 ior -a POSIX -F -w -k -b 16m -t 1m -e -o data/f >/dev/null; mpiexec -n 2 ior -a POSIX -F -r -b 16m -t 1m -C -O summaryFormat=JSON -o data/f
