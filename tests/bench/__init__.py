"""Benches of the harness itself: `make bench`, `make detection`."""
