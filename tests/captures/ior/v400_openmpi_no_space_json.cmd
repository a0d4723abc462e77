mkdir full; mount -t tmpfs -o size=8m tmpfs full; mpirun -n 2 ior -a POSIX -F -w -r -b 16m -t 1m -C -e -O summaryFormat=JSON -o full/f; rc=$?; umount -l full; exit $rc
