"""The `busway` command line: its version, its help, and what it imports."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from cli.main import app

# Help needs none of them, and each takes a tenth of a second to some seconds to import. Typer itself imports pydantic
# where an option has a range; the models of the configuration are what takes long.
HEAVY = (
    *("aiohttp", "azure", "cryptography", "duckdb", "grpc", "opentelemetry", "pyarrow", "pyspark"),
    *("local.broker", "local.host", "shared.config.models"),
)
COMMANDS = (
    "apply",
    "broker",
    "check",
    "checkpoints",
    "dead",
    "delete-raw",
    "demo",
    "export",
    "failover",
    "host",
    "new",
    "package",
    "plan",
    "receive",
    "purge",
    "reconcile",
    "rejects",
    "repair",
    "schema",
    "send",
    "smoke",
    "start",
    "trace",
    "try",
)
HELP = (
    (),
    *((command,) for command in COMMANDS),
    *(("dead", each) for each in ("list", "show", "resend", "export", "drop")),
    *(("failover", each) for each in ("show", "plan", "switch", "drill")),
)

# In a process of its own, since this one has imported them. All in one process: an import of an earlier command stays.
PRINT_HEAVY_IMPORTS = f"""
import contextlib, io, json, sys
from cli.main import app

found = {{}}
for arguments in {HELP!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        app([*arguments, "--help"], prog_name="busway")
    if "Usage: busway" not in out.getvalue():
        found[" ".join(arguments)] = "no help"
    for name in {HEAVY!r}:
        if name in sys.modules:
            found.setdefault(name, " ".join(arguments))
print(json.dumps(found))
"""


def test_help_imports_no_heavy_package() -> None:
    command = [sys.executable, "-c", PRINT_HEAVY_IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - the text above
    assert json.loads(done.stdout) == {}


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"], prog_name="busway")
    assert result.exit_code == 0
    assert [command for command in COMMANDS if f"│ {command} " not in result.output] == []


def test_version_is_that_of_the_distribution() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"busway {version('busway')}\n")


def test_unknown_command_suggests_a_similar_one() -> None:
    result = CliRunner().invoke(app, ["chek"])
    assert result.exit_code == 2
    assert "No such command 'chek'. Did you mean 'check'" in result.output


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_fits_a_terminal_of_80_columns(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "80"})
    assert max(map(len, result.output.splitlines())) <= 80
