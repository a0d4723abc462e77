"""What every other layer uses: errors, text, paths, processes, units, files."""
