"""`busway try`: what a task would do with messages, step by step, without sending any."""
