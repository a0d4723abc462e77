"""The history: the records of all sessions, and an index that answers quickly."""
