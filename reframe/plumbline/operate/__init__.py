"""What a site operates: nightly runs, sweeps, new systems, lint, doctor."""
