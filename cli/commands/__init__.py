"""The commands, one module for each: its options, its help, and what it does; `cli.main` has the table of them."""
