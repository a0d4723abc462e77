"""Systems: configuration, hosts, launchers, schedulers, inventories."""
