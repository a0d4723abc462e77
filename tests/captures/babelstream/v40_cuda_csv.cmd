cuda-stream -s 33554432 -n 20 --csv
