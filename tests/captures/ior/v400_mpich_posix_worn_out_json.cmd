mpiexec -n 2 ior -a POSIX -w -r -e -F -Z -b 1g -t 1m -s 8 -D 1 -O stoneWallingWearOut=1 -O summaryFormat=JSON -o data/f
