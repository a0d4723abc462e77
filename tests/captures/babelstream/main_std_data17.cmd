std-data17-stream -s 1048576 -n 20
