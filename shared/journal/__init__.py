"""The journal: a record of every message and its outcome."""
