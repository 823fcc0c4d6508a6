"""Lookup tables: where they come from, how they are read, and what they add."""
