"""Task files: read, checked as a whole, and turned into pipelines."""
