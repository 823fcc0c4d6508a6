"""`busway repair`: what a reconciliation has found missing, looked for and sent again."""
