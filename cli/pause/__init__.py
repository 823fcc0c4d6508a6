"""Pausing, draining and resuming tasks."""
