tbb-stream --float -s 67108864 -n 2
