cuda-stream -s 1000000 -n 20
