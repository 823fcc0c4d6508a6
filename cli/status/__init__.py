"""`busway status`."""
