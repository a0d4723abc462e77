"""Test cases: the mixin of all checks, and their samples, verdicts, results and records."""
