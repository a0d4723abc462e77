cuda-stream --list
