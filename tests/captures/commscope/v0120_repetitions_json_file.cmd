comm_scope --benchmark_filter='libc_memcpy_NUMAToNUMA/0/0/.*:20$' --benchmark_repetitions=3 --benchmark_out=rep.json --benchmark_out_format=json
