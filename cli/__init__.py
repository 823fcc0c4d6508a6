"""The `busway` command: one file per subcommand, joined in `main`."""
