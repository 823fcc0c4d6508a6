"""The edge in: the only code that knows Azure Functions."""
