"""The history as pages, exports and answers to queries."""
