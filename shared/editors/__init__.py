"""Steps that change, drop or multiply messages, one verb per file."""
