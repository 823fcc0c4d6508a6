"""`busway repair`: find copies of missing messages and send them."""
