"""Where the tasks of a test case run: placements, devices, binding, and the proof of it."""
