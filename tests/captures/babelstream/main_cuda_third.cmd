cuda-stream -s 1048576 -n 20 --device 2
