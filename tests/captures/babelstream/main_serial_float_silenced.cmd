serial-stream --float --silence-errors -s 67108864 -n 2
