sed 's/^1000 /400 /; s/^2            Ps/1            Ps/' _hpccinf.txt >hpccinf.txt; rm -f hpccoutf.txt; mpirun -np 1 hpcc; cat hpccoutf.txt
