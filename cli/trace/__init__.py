"""`busway trace`: what the journals know of one message."""
