"""What figures of merit say over sessions, nodes and maintenances; site baselines."""
