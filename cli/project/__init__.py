"""`busway new` and `busway package`: a project that holds only a configuration."""
