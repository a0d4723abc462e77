comm_scope --benchmark_filter='zzz'
