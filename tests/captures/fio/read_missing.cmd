fio --name=t --size=16M --bs=1M --direct=1 --filename=missing --ioengine=psync --group_reporting --output-format=json --rw=read --readonly --allow_file_create=0
