"""`busway try`: what a task would make of messages, step by step, without sending anything."""
