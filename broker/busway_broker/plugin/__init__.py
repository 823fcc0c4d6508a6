"""What the fixtures of the pytest plugin are made of."""
