"""Reading: the raw files of a journal as records, and the result of the previous run."""
