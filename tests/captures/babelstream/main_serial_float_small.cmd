serial-stream --float -s 1048576 -n 20
