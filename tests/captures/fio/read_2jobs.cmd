fio --name=plumbline --directory=. --rw=read --bs=1M --size=32M --numjobs=2 --direct=1 --end_fsync=1 --ioengine=psync --group_reporting --output-format=json
