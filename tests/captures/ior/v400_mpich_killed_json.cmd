timeout -s KILL 2 mpiexec -n 2 ior -a POSIX -F -w -r -b 64m -t 64k -e -i 100 -O summaryFormat=JSON -o data/f
