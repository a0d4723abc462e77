cuda-stream -s 8589934592 -n 20
