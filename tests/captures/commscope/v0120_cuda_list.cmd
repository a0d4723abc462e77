comm_scope --benchmark_filter='^(Comm_cuda(Memcpy|DeviceSynchronize|rt_kernel)|libc_memcpy)' --benchmark_list_tests=true
