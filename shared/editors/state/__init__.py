"""State of editors outside of messages: ids that were sent, and stored bodies."""
