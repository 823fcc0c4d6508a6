"""A message and what Busway writes on it."""
