comm_scope --benchmark_filter='^(Comm_cuda(Memcpy|DeviceSynchronize|rt_kernel)|libc_memcpy)' --benchmark_list_tests=true | grep -vE '_flush|threads:2$|log2\(N\):(9|1[0-9]|2[0-6]|29|31)(/|$)'
