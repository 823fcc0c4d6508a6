"""Where the decisions about messages are written."""
