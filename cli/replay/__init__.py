"""`busway replay`: send messages of a task again."""
