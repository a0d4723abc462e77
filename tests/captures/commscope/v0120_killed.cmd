timeout -s KILL 2 comm_scope --benchmark_filter=NUMAToNUMA --benchmark_out=killed.json --benchmark_out_format=json
