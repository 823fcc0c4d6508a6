"""Where messages are sent, one file per kind of target."""
