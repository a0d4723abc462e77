serial-stream --csv -s 1048576 -n 20
