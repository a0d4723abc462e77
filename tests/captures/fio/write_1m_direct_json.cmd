fio --name=t --size=256M --bs=1M --direct=1 --directory=. --ioengine=psync --group_reporting --rw=write --output-format=json
