comm_scope --benchmark_filter='^Comm_cudart_kernel/0/1/(8|256)/real_time/threads:1' --benchmark_out=cuda.json --benchmark_out_format=json
