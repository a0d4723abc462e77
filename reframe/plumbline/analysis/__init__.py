"""Figures of merit over sessions, over nodes, and before and after; site baselines."""
