comm_scope --help
