comm_scope --benchmark_list_tests
