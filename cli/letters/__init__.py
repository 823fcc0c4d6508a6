"""Messages of entities: which a command selects, what is shown of them, and what is done with them."""
