mpirun -n 2 ior -a POSIX -F -w -k -G 1 -b 1m -t 64k -o data/f >/dev/null; mpirun -n 2 ior -a POSIX -F -r -R -G 2 -b 1m -t 64k -O summaryFormat=JSON -o data/f
