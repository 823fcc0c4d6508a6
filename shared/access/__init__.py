"""How the app gets access: its Azure identity, and its secrets."""
