"""Pausing and resuming tasks."""
