fio --name=plumbline --directory=. --rw=write --bs=1M --size=64M --numjobs=1 --direct=1 --end_fsync=1 --ioengine=psync --group_reporting --output-format=json
