"""One session: its plan, ReFrame's run, its summary, and recovery after a kill."""
