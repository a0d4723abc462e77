comm_scope --benchmark_filter=zzz --benchmark_out=none.json --benchmark_out_format=json
