fio --name=t --size=64M --bs=1M --direct=1 --directory=. --ioengine=psync --group_reporting --output-format=json --rw=read
