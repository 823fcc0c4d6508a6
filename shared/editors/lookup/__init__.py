"""Tables that messages are looked up in: where they come from, how they are read and joined."""
