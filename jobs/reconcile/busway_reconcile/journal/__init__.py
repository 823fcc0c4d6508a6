"""What a journal is: its record, its hours, its address, and the problems that it can have."""
