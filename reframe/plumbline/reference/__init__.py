"""Reference tables, tolerances, and what they expect of a figure of merit."""
