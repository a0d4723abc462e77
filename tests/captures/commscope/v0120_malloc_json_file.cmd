comm_scope --benchmark_min_time=0.01 --benchmark_filter='malloc.*:(12|20)(/manual_time)?$' --benchmark_out=malloc.json --benchmark_out_format=json
