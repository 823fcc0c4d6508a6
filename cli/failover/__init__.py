"""`busway failover`: which site applications use, and how that is changed."""
