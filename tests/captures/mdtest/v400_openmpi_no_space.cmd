mkdir full; mount -t tmpfs -o size=256k tmpfs full; mpirun -n 2 mdtest -n 10 -u -F -w 32768 -e 32768 -d full/t; rc=$?; umount -l full; exit $rc
