"""Reference tables, tolerances, and the bounds that they give."""
