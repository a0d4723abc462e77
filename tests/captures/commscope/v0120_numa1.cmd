comm_scope --numa 7 --benchmark_list_tests
