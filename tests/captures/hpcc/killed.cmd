sed 's/^1000 /6000 /; s/^2            Ps/1            Ps/' _hpccinf.txt >hpccinf.txt; rm -f hpccoutf.txt; timeout 4 mpirun -np 2 hpcc; cat hpccoutf.txt
