"""`python -m cli` is the `busway` command."""

from cli.main import app

app(prog_name="busway")
