"""Editors, one verb per file: steps of a task that change, withhold, split or join messages."""
