"""Messages that were given up: what they are, and how they are sent again."""
