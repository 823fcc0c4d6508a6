"""`busway smoke`."""
