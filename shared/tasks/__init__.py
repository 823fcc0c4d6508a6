"""Task files and the files beside them: models, reading, and the faults of one file."""
