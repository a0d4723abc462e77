"""What a test case is: the mixin of all checks, its samples, verdict, result and record."""
