serial-stream --only Nstream -s 1024 -n 1000
