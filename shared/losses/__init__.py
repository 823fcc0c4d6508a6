"""Losses within minutes: sequence numbers that left a source although no task has received them."""
