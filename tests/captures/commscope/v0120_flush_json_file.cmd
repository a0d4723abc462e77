comm_scope --benchmark_filter='memcpy_NUMAToNUMA_flush/0/0/.*:(12|20)$' --benchmark_min_time=0.01 --benchmark_out=flush.json --benchmark_out_format=json
