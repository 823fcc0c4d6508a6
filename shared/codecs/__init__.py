"""Formats that bodies are written in, read strictly: what is not what it claims to be is a MessageRejected."""
