fio --name=t --size=16M --bs=1M --direct=1 --directory=. --ioengine=psync --output-format=json --rw=write --numjobs=2
