"""Judging: compacted records in, one verdict per message out; every step takes frames and returns its results."""
