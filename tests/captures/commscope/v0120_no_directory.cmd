comm_scope --benchmark_filter='libc_memcpy_NUMAToNUMA/0/0/.*:(12|2[0-2])$' --benchmark_out=nosuch/x.json --benchmark_out_format=json
