sed 's/^1000 /400 /; s/^16.0/0.0000001/; s/^2            Ps/1            Ps/' _hpccinf.txt >hpccinf.txt; rm -f hpccoutf.txt; mpirun -np 2 hpcc; cat hpccoutf.txt
