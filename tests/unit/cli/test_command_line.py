"""The `busway` command line: its version, its help, and what it imports."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cli import commands
from cli.main import GROUPS, app

ROOT = Path(__file__).parents[3]

# Help needs none of them, and each takes a tenth of a second to some seconds to import. Typer itself imports pydantic
# where an option has a range; the models of the configuration are what takes long.
HEAVY = (
    *("aiohttp", "azure", "cryptography", "duckdb", "grpc", "opentelemetry", "pyarrow", "pyspark"),
    *("busway_broker", "host", "shared.tasks.models"),
)
COMMANDS = [command for group in GROUPS.values() for command in group]
SUBCOMMANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("messages", "dead", "rejects"), ("list", "show", "resend", "export", "drop")),
    "failover": ("show", "switch", "failback", "drill"),
}
NESTED = [(command, each) for command, names in SUBCOMMANDS.items() for each in names]
HELP = ((), *((command,) for command in COMMANDS), *NESTED)

# In a process of its own, since this one has imported them. All in one process: an import of an earlier command stays.
PRINT_FAULTS = f"""
import contextlib, io, json, sys
from cli.main import app

found = {{}}
for arguments in [*{HELP!r}, ("--help",)]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        app([*arguments, "-h"], prog_name="busway")
    if "Usage: busway" not in out.getvalue():
        found[" ".join(arguments)] = "no help"
    if max(map(len, out.getvalue().splitlines())) > 80:
        found[" ".join(arguments)] = "more than 80 columns"
    for name in {HEAVY!r}:
        if name in sys.modules:
            found.setdefault(name, " ".join(arguments))
print(json.dumps(found))
"""


def test_help_fits_a_terminal_of_80_columns_and_imports_no_heavy_package() -> None:
    command = [sys.executable, "-c", PRINT_FAULTS]
    done = subprocess.run(  # noqa: S603 - the text above
        command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert json.loads(done.stdout) == {}


def test_help_lists_every_command_in_its_group() -> None:
    result = CliRunner().invoke(app, ["-h"], prog_name="busway")
    assert result.exit_code == 0
    shown = re.findall(
        r"^[│╭]─* ?([A-Z][\w ]+|[a-z-]+) ", result.output[result.output.index("╭─ Start") :], re.MULTILINE
    )
    *listed, (_, parts) = GROUPS.items()
    assert [word.strip() for word in shown] == [word for group, names in listed for word in (group, *names)]
    assert f"Parts: {', '.join(parts)}" in " ".join(result.output.split())


def test_each_command_has_a_module_and_each_module_a_command() -> None:
    modules = {path.stem for folder in commands.__path__ for path in Path(folder).glob("[a-z]*.py")}
    assert {entry.module for group in GROUPS.values() for entry in group.values()} == modules


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan",), 1),
        (("dead", "list"), 1),
        (("status",), 2),
        (("try", "copy", "--peek", "1"), 2),
        (("pause", "copy"), 2),
        (("reconcile",), 2),
    ],
)
def test_an_error_ends_a_command_with_a_line_for_each_problem(
    arguments: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, [*arguments, "--config", str(tmp_path / "nowhere")])
    assert (result.exit_code, result.stdout) == (code, "")
    assert f"{tmp_path / 'nowhere'}" in result.stderr
    assert "Traceback" not in result.stderr


def options_of(*command: str) -> set[str]:
    """Return the options of a command, those of a group of its commands."""
    found: Any = get_command(app)
    context = found.make_context("busway", ["--help"], resilient_parsing=True)
    for name in command:
        context = found.commands[name].make_context(name, [], context, resilient_parsing=True)
        found = context.command
    return {option for param in found.params for option in param.opts}


def test_the_page_names_every_command_that_acts_with_yes() -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    listed = text.partition("do it with `--yes`: ")[2].partition("\n\n")[0]
    named = {tuple(each.removeprefix("busway ").split(" --")[0].split()) for each in re.findall(r"`([^`]+)`", listed)}
    every = [*NESTED, *((command,) for command in COMMANDS if command not in SUBCOMMANDS)]
    assert {command for command in every if "--yes" in options_of(*command)} == named


def test_version_is_that_of_the_distribution_and_names_the_commit_of_a_checkout() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    development = r"\+g[0-9a-f]{9,}" if ".dev" in version("busway") else ""
    assert re.fullmatch(rf"busway {re.escape(version('busway'))}{development}\n", result.output)


def test_unknown_command_suggests_a_similar_one() -> None:
    result = CliRunner().invoke(app, ["chek"])
    assert result.exit_code == 2
    assert "No such command 'chek'. Did you mean 'check'" in result.output


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("busway mess", "messages"), ("busway messages li", "list"), ("busway dead drop --ol", "--older-than")],
)
def test_the_shell_completes_commands_and_their_options(typed: str, completed: str) -> None:
    setting = {"_BUSWAY_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    result = CliRunner().invoke(app, [], prog_name="busway", env=setting)
    assert result.stdout.split() == [completed]
